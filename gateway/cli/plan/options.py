"""The command's own options; those of vLLM are read by domain/memory/serve_line.py."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(help="Id of the model, or a folder with its config.json and, if quantised, its safetensors files."),
]
Cards = Annotated[
    list[str] | None,
    typer.Option("--gpu", help="The card, e.g. L4, A100-80GB, H100. May be repeated with --compare."),
]
CardMemory = Annotated[
    float | None,
    typer.Option("--gpu-memory", metavar="GIB", help="Memory of a card as torch sees it, if not known by name."),
]
OfHub = Annotated[
    bool,
    typer.Option(
        "--hub",
        help="Fetch the config.json of a model that is nowhere else from the hub, by the extra hub.",
    ),
]
Foreign = Annotated[float, typer.Option(metavar="GIB", help="Memory that other processes hold on the card.")]
Command = Annotated[str | None, typer.Option(help='A whole pasted line: "vllm serve ...".')]
VllmVersion = Annotated[str | None, typer.Option(help="The version of vLLM, e.g. 0.11.0; 0.32 if left out.")]
Images = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="WxH", help="A size of images to count in the pool. May be repeated."),
]
FitGoal = Annotated[
    str | None,
    typer.Option("--fit", help='Find flags for a goal: "8 users, 2 images of 1280x1280, 4k context".'),
]
MostCards = Annotated[int, typer.Option("--cards", min=1, help="Cards that --fit may spread the model over.")]
Compared = Annotated[
    list[str] | None,
    typer.Option(metavar="MODELS...", help="Models side by side: ids, or sizes of one series, as 3B 7B 32B."),
]
Settings = Annotated[Path | None, typer.Option(help="Write the gateway's settings that follow to a new file.")]
Upstream = Annotated[str, typer.Option(metavar="URL", help="Address of vLLM in that file.")]
Html = Annotated[Path | None, typer.Option(help="Write the plan as one HTML file as well.")]
Cases = Annotated[Path | None, typer.Option(help="Compare plans with a file of observed starts, and do nothing else.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON in place of tables.")]
