"""`vlm-gateway plan`: will vLLM start, what will it hold, and which flag to change. Its parts are beside it."""

import json
import shlex
from pathlib import Path
from typing import NamedTuple

import typer
from rich.console import Console

from gateway.cli.options import fail, wide_console
from gateway.cli.plan import options
from gateway.cli.plan.asked import Asked, AskedError, Wish, asked_of
from gateway.cli.plan.comparison import other_cards, print_comparison
from gateway.cli.plan.gateway_file import gateway_file
from gateway.cli.plan.goal import GoalError, read_goal, read_size
from gateway.cli.plan.page import plan_page
from gateway.cli.plan.report import fit_report, plan_report
from gateway.cli.plan.score_tables import print_scores
from gateway.cli.plan.scores import score, summary
from gateway.cli.plan.tables import print_plan
from gateway.domain.geometry import Size
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.fit import Fitted, Goal, fit
from gateway.domain.memory.holding import Held, images_held
from gateway.domain.memory.plan import Outcome, Plan
from gateway.domain.memory.planning import make_plan
from gateway.domain.memory.serve_line import ServeLineError, write_command
from gateway.domain.vision.base import ProcessorConfigError
from gateway.models.places import HubError
from gateway.models.processor_config import ModelFilesError
from gateway.settings_sources import SettingsError, load

_MISTAKES = (
    AskedError, GoalError, ServeLineError, NotPlannableError, ProcessorConfigError, ModelFilesError, HubError
)  # fmt: skip
_SIZES = ("512", "1024", "1280", "1920x1080")
_UNPLANNED = "Not planned, though memory depends on it"


def plan(
    context: typer.Context,
    model: options.Model = None,
    gpu: options.Cards = None,
    gpu_memory: options.CardMemory = None,
    foreign: options.Foreign = 0.0,
    hub: options.OfHub = False,
    command: options.Command = None,
    vllm_version: options.VllmVersion = None,
    image: options.Images = None,
    fit_goal: options.FitGoal = None,
    cards: options.MostCards = 1,
    compare: options.Compared = None,
    write: options.Settings = None,
    upstream: options.Upstream = "http://127.0.0.1:8000",
    html: options.Html = None,
    cases: options.Cases = None,
    as_json: options.AsJson = False,
) -> None:
    """Plan the memory of a vLLM start before it runs: each term on each card, the KV pool in GiB and tokens, the images
    that it holds, the phase that would fail, what each flag would change. Nothing is started, and no GPU is needed.

    Flags of vLLM are given as vLLM takes them: --max-model-len, --max-num-seqs, --max-num-batched-tokens,
    --gpu-memory-utilization, --tensor-parallel-size (-tp), --dtype, --quantization (-q), --kv-cache-dtype,
    --limit-mm-per-prompt '{"video": 0}' or --limit-mm-per-prompt.video 0, --mm-processor-kwargs '{"max_pixels":
    1003520}', --mm-encoder-tp-mode, --skip-mm-profiling, --language-model-only, --enforce-eager, --block-size,
    --kv-cache-memory-bytes, --cpu-offload-gb, --runner. Flags that memory does not depend on are ignored; those that it
    depends on and that are not planned are named; those that vLLM has not are an error.

    For example:

      vlm-gateway plan --model Qwen/Qwen2.5-VL-3B-Instruct --gpu L4 --max-num-seqs 64 --max-model-len 8192

      vlm-gateway plan --gpu A100-80GB --command "vllm serve Qwen/Qwen2.5-VL-32B-Instruct -tp 2 --max-model-len 32k"

      vlm-gateway plan --model Qwen/Qwen2.5-VL-7B-Instruct --gpu L4 --fit "8 users, 2 images of 1280x1280, 4k context"

      vlm-gateway plan --compare 3B 7B 32B --gpu H100 --max-model-len 8192

      vlm-gateway plan --model ./my-model --gpu L4 --max-model-len 8192 --write gateway.yaml --html plan.html

    Exit code 0: it fits, with --compare at least one does, or the goal is met. 1: it does not, or it is too close to
    say. 2: the command line is wrong.
    """
    if cases is not None:
        _replay(cases, as_json=as_json)
        return
    _refuse_contradictions(compare, fit_goal, write, cards)
    own = tuple(name for option in context.command.params for name in option.opts)
    wish = Wish(model, gpu or [], gpu_memory, foreign, command, vllm_version, compare or [], hub, own)
    try:
        if compare:
            _compare(asked_of(context.args, wish), as_json=as_json, html=html)
        else:
            outputs = Outputs(as_json, html, write, upstream)
            _plan_one(asked_of(context.args, wish), image or [], fit_goal, cards, outputs)
    except _MISTAKES as mistake:
        fail(str(mistake))


def _refuse_contradictions(compare: list[str] | None, fit_goal: str | None, write: Path | None, cards: int) -> None:
    if compare and (fit_goal is not None or write):
        fail("--compare plans several models: --fit and --write are for one")
    if cards > 1 and fit_goal is None:
        fail("--cards is for --fit; a plan on several cards takes --tensor-parallel-size (-tp)")


class Outputs(NamedTuple):
    """Where the plan of one model goes."""

    as_json: bool
    html: Path | None
    write: Path | None
    upstream: str


def _plan_one(asked: Asked, images: list[str], fit_goal: str | None, cards: int, outputs: Outputs) -> None:
    sizes = [read_size(text) for text in images]
    goal = None if fit_goal is None else read_goal(fit_goal)
    if not sizes:
        sizes = [goal.image_size] if goal and goal.image_size else [read_size(text) for text in _SIZES]
    found = _found(asked, goal, cards)
    held = [images_held(found.plan, size) for size in sizes] if images else _held(found.plan, sizes)
    _print(found, goal, held, asked, as_json=outputs.as_json)
    if outputs.html is not None:
        _write(outputs.html, plan_page([found.plan], [held]), may_replace=True)
    if outputs.write is not None:
        _write_settings(outputs.write, found.plan, outputs.upstream, goal)
    if not found.is_met:
        raise typer.Exit(1)


def _found(asked: Asked, goal: Goal | None, cards: int) -> Fitted:
    """One plan, or the one that a goal leads to."""
    if goal is not None:
        return fit(asked.models[0], asked.gpus[0], asked.flags, asked.version, goal, cards=cards)
    one = make_plan(asked.models[0], asked.gpus[0], asked.flags, asked.version)
    return Fitted(one, one.flags.max_model_len or 0, (), one.verdict.outcome is Outcome.FITS)


def _held(found: Plan, sizes: list[Size]) -> list[Held]:
    try:
        return [images_held(found, size) for size in sizes]
    except NotPlannableError:
        return []


def _print(found: Fitted, goal: Goal | None, held: list[Held], asked: Asked, *, as_json: bool) -> None:
    if as_json:
        report = plan_report(found.plan, held) if goal is None else fit_report(found, held)
        typer.echo(json.dumps(report | _unused(asked)))
        return
    console = wide_console()
    print_plan(console, found.plan, held)
    _print_unused(console, asked)
    if goal is not None:
        console.print(f"\n{_told(found, goal)}", markup=False, soft_wrap=True)
        for line in other_cards(found):
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"\n{_line(found.plan)}", markup=False, soft_wrap=True)


def _print_unused(console: Console, asked: Asked) -> None:
    for words, named in (("Not needed for a plan", asked.ignored), (_UNPLANNED, asked.unplanned)):
        if named:
            console.print(f"- {words}: {', '.join(named)}.", markup=False, soft_wrap=True)


def _unused(asked: Asked) -> dict[str, tuple[str, ...]]:
    return {"ignored_flags": asked.ignored, "unplanned_flags": asked.unplanned}


def _told(found: Fitted, goal: Goal) -> str:
    wish = f"{_counted(goal.users, 'user')} with {found.request_tokens:,} tokens each"
    if goal.images:
        wish += f", {_counted(goal.images, 'image')} of {goal.image_size} among them"
    if not found.is_met:
        return f"Not met, whatever is changed: {wish}. Closest, with {', '.join(found.changed)}:"
    how = ", ".join(found.changed) or "nothing changed"
    return f"Met at the lower limits: {wish}. Needed for it: {how}."


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _line(found: Plan) -> str:
    return shlex.join(write_command(found.model.name, found.flags))


def _compare(asked: Asked, *, as_json: bool, html: Path | None) -> None:
    plans, refusals = [], []
    for spec in asked.models:
        for card in asked.gpus:
            try:
                plans.append(make_plan(spec, card, asked.flags, asked.version))
            except (NotPlannableError, ProcessorConfigError) as refusal:
                refusals.append(f"{spec.name} on {card.name}: {refusal}")
    if as_json:
        compared = {"plans": [plan_report(each, []) for each in plans], "refused": refusals}
        typer.echo(json.dumps(compared | _unused(asked)))
    else:
        console = wide_console()
        print_comparison(console, plans, refusals)
        _print_unused(console, asked)
    if html is not None:
        _write(html, plan_page(plans, [[] for _ in plans]), may_replace=True)
    if not any(each.verdict.outcome is Outcome.FITS for each in plans):
        raise typer.Exit(1)


def _replay(path: Path, *, as_json: bool) -> None:
    """Of a file that cannot be read nothing is compared; of one that can, whatever can be."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        fail(f"--cases {path}: {broken}")
    cases = content.get("cases") if isinstance(content, dict) else content
    if not isinstance(cases, list):
        fail(f"--cases {path}: there is no list under `cases`")
    scores = [score(case) for case in cases]
    if as_json:
        typer.echo(json.dumps({"summary": summary(scores), "cases": [each.as_json() for each in scores]}))
    else:
        print_scores(wide_console(), scores)


def _write_settings(path: Path, found: Plan, upstream: str, goal: Goal | None) -> None:
    """Of a start that fails there is no budget to write."""
    if found.verdict.outcome is Outcome.DOES_NOT_FIT:
        typer.echo(f"--write {path}: not written, since the plan does not fit", err=True)
        return
    text = gateway_file(found, _line(found), upstream, goal)
    try:
        load(file_text=text, file_name=str(path))
    except SettingsError as mistake:
        fail(f"--write {path}: {mistake}")
    _write(path, text, may_replace=False)


def _write(path: Path, text: str, *, may_replace: bool) -> None:
    try:
        with path.open("w" if may_replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        fail(f"--write {path}: the file is there already, and settings are not replaced")
    except OSError as unwritable:
        fail(f"{path}: {unwritable}")
    typer.echo(f"Written: {path}", err=True)
