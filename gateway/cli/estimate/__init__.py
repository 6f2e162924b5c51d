"""`vlm-gateway estimate`: what a gateway would do with a request, without a server or asked of a running one. Its parts
are beside it.
"""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.estimate.estimation import CHAT_PATH, Assumptions, estimate_request
from gateway.cli.estimate.live import KEY_VARIABLE, ask_gateway
from gateway.cli.estimate.tables import print_estimate
from gateway.cli.options import Assignments, ConfigFile, fail, read_settings
from gateway.models.configure import ModelSettingsError
from gateway.models.processor_config import ModelFilesError
from gateway.wire.report import encode_report

_OF_BOTH = {"request", "endpoint", "live", "api_key", "as_json"}
_OPTIONS = {"assignments": "--set"}


Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        show_default=False,
        help="The route that it is for, e.g. /v1/messages. Default: a chat; with --live as its fields say.",
    ),
]
LiveGateway = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Ask the gateway that runs there instead: its models, its load just now."),
]
KeyOfLive = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", envvar=KEY_VARIABLE, show_default=False, help="Of the gateway that --live asks, if it has keys."
    ),
]


def estimate(
    context: typer.Context,
    request: Annotated[
        typer.FileBinaryRead, typer.Argument(help="The body of the request as JSON; - reads standard input.")
    ],
    config: ConfigFile = None,
    assignments: Assignments = None,
    model_folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the model: its family, limits of its processor, text counts and bytes a token."),
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help="The context, in tokens, that vLLM serves the model with.")
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a KV block of that vLLM.")] = 16,
    kv_bytes_per_token: Annotated[
        int | None, typer.Option(min=1, help="Bytes of KV cache a token, where no folder tells.")
    ] = None,
    endpoint: Endpoint = None,
    live: LiveGateway = None,
    api_key: KeyOfLive = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print the whole plan of a request: each image and what becomes of it, what is trimmed, the cost in tokens, blocks
    and MiB, the verdict, and where that is no, what would fit. These are the gateway's own steps up to admission; of
    images it reads the headers only. Nothing is sent to a model.

    For example:

      vlm-gateway estimate request.json --model-folder /models/Qwen2.5-VL-7B-Instruct

      vlm-gateway estimate request.json --max-model-len 32768 --set budget.kv_blocks=8000 --set resize.preset=ocr

      vlm-gateway estimate request.json --set 'models=[{name: my-vl, family: qwen2_5_vl}]' --json | tail -1

      vlm-gateway estimate request.json --live http://127.0.0.1:8080 --endpoint /v1/messages

    Exit code 0: it would be admitted, or wait its turn. 1: it would be refused, with the error that the client would
    get. 2: the command line is wrong, or no gateway answered.
    """
    if live is not None:
        _refuse_assumptions(context)
        found = ask_gateway(live, request.read(), endpoint, api_key)
    else:
        loaded = read_settings(config, assignments, {})
        assumed = Assumptions(model_folder, max_model_len, block_size, kv_bytes_per_token, endpoint or CHAT_PATH)
        try:
            found = estimate_request(request.read(), loaded.settings, assumed)
        except (ModelSettingsError, ModelFilesError) as mistakes:
            fail(f"The models cannot be read:\n{mistakes}")
    print_estimate(found, is_live=live is not None)
    if as_json:
        typer.echo(encode_report(found))
    if found.verdict.error is not None:
        raise typer.Exit(1)


def _refuse_assumptions(context: typer.Context) -> None:
    """A running gateway has settings, models and limits of its own."""
    given = [
        name
        for name in context.params
        if name not in _OF_BOTH and (source := context.get_parameter_source(name)) and source.name != "DEFAULT"
    ]
    if given:
        options = ", ".join(_OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in sorted(given))
        fail(f"--live asks a gateway that has settings of its own: leave out {options}")
