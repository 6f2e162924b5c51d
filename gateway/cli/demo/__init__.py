"""`vlm-gateway demo`: the main job before an emulated vLLM, told in tables. The command is here, its parts beside."""

from typing import Annotated

import typer

from gateway.cli.options import fail


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave both servers running; print the address and an SDK snippet.")
    ] = False,
) -> None:
    """Start an emulated vLLM and the gateway, send real pictures through the OpenAI SDK, and print what happened.

    Four acts: a 12 MP photograph and a screenshot, each as it came and under a resize policy; a conversation of 20
    turns that outgrows the context; a burst that outgrows the KV pool. No GPU and no model is needed. Takes half a
    minute.

        vlm-gateway demo

        vlm-gateway demo --keep

    Exit code 1, with the reason, where anything did not behave.
    """
    try:
        from gateway.cli.demo.performance import perform  # noqa: PLC0415 - the extra is asked for only here
    except ImportError as missing:
        fail(f"The demo needs the extra demo ({missing}): pip install 'vlm-gateway[demo]'")
    raise typer.Exit(perform(keep=keep))
