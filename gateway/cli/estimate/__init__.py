"""`vlm-gateway estimate`: what the gateway would do with a request, without a server. Its parts are beside it."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.estimate.estimation import Assumptions, estimate_request
from gateway.cli.estimate.tables import print_estimate
from gateway.cli.options import Assignments, ConfigFile, fail, read_settings
from gateway.models.configure import ModelSettingsError
from gateway.models.processor_config import ModelFilesError
from gateway.wire.report import encode_report


def estimate(
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
    endpoint: Annotated[str, typer.Option(help="The route that the request is for.")] = "/v1/chat/completions",
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print the whole plan of a request, offline: each image and what becomes of it, what is trimmed, the cost in
    tokens, blocks and MiB, and the verdict. These are the gateway's own steps up to admission; of images it reads the
    headers only.

    For example:

      vlm-gateway estimate request.json --model-folder /models/Qwen2.5-VL-7B-Instruct

      vlm-gateway estimate request.json --max-model-len 32768 --set budget.kv_blocks=8000 --set resize.preset=ocr

      vlm-gateway estimate request.json --set 'models=[{name: my-vl, family: qwen2_5_vl}]' --json | tail -1

    Exit code 0: it would be admitted. 1: it would be refused, with the error that the client would get. 2: the command
    line is wrong.
    """
    loaded = read_settings(config, assignments, {})
    assumed = Assumptions(model_folder, max_model_len, block_size, kv_bytes_per_token, endpoint)
    try:
        found = estimate_request(request.read(), loaded.settings, assumed)
    except (ModelSettingsError, ModelFilesError) as mistakes:
        fail(f"The models cannot be read:\n{mistakes}")
    print_estimate(found)
    if as_json:
        typer.echo(encode_report(found))
    if found.verdict.error is not None:
        raise typer.Exit(1)
