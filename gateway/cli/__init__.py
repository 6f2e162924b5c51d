"""The command line: one file per command, put together here."""

import typer

from gateway.cli.check import check
from gateway.cli.demo import demo
from gateway.cli.doctor import doctor
from gateway.cli.emulate import emulate
from gateway.cli.estimate import estimate
from gateway.cli.families import families
from gateway.cli.key import key
from gateway.cli.plan import plan
from gateway.cli.replay import replay
from gateway.cli.serve import serve
from gateway.cli.tokens import tokens
from gateway.cli.usage import usage

app = typer.Typer(
    name="vlm-gateway",
    help="Admission control in front of vLLM serving vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve)
app.command("demo")(demo)
app.command("emulate")(emulate)
app.command("check")(check)
app.command("doctor")(doctor)
app.command("estimate")(estimate)
app.command("tokens")(tokens)
app.command("families")(families)
app.command("replay")(replay)
app.command("usage")(usage)
app.add_typer(key, name="key")
app.command("plan", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(plan)


def main() -> None:
    app()
