"""The whole demo from start to end: servers up, acts played, tables printed, servers gone."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import httpx
import openai
from rich.console import Console

from gateway.cli.demo import model
from gateway.cli.demo.acts import Play, Stage, Tell
from gateway.cli.demo.meter import Meter
from gateway.cli.demo.servers import ServerFailedError, Servers, running_servers
from gateway.cli.demo.tables import burst_table, pictures_table, refusal_lines, turns_table
from gateway.cli.demo.verdict import complaints
from gateway.cli.options import wide_console

_WATCH_SECONDS = 0.5
_ANSWER_SECONDS = 60.0

_SNIPPET = """\
from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="any")
answer = client.chat.completions.with_raw_response.create(
    model="{model}",
    messages=[{{"role": "user", "content": [
        {{"type": "text", "text": "What is this?"}},
        {{"type": "image_url", "image_url": {{"url": "data:image/png;base64,{pixel}"}}}},
    ]}}],
    max_tokens=32,
)
print(answer.parse().choices[0].message.content)
print({{name: value for name, value in answer.headers.items() if name.startswith("x-gateway")}})
"""
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


def perform(*, keep: bool) -> int:
    """Play it all; returns the exit code."""
    console = wide_console()
    try:
        with _terminated_like_interrupted(), contextlib.ExitStack() as stack:
            with _told(console) as tell:
                tell("starting an emulated vLLM and the gateway")
                servers = stack.enter_context(running_servers())
                play = asyncio.run(_play(servers, tell))
            troubles = _show(console, play)
            if keep and not troubles:
                _keep(console, servers)
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except (ServerFailedError, openai.OpenAIError, httpx.HTTPError) as failure:
        console.print(f"The demo failed: {failure}", markup=False)
        return 1
    return 1 if troubles else 0


async def _play(servers: Servers, tell: Tell) -> Play:
    async with (
        httpx.AsyncClient(trust_env=False) as meter_client,
        openai.AsyncOpenAI(
            base_url=f"{servers.gateway.url}/v1",
            api_key="any",
            max_retries=0,
            timeout=_ANSWER_SECONDS,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client,
    ):
        stage = Stage(client, model.NAME, Meter(meter_client, (servers.gateway.url, servers.engine.url)), tell)
        return Play(await stage.show_pictures(), await stage.converse(), await stage.burst())


def _show(console: Console, play: Play) -> list[str]:
    files = model.describe()
    for table in (pictures_table(play.pictures, files), turns_table(play.turns, files), burst_table(play.burst)):
        console.print(table)
        console.print()
    for line in refusal_lines(play.burst):
        console.print(line)
    troubles = complaints(play)
    for trouble in troubles:
        console.print(f"[red]Not as it should be:[/red] {trouble}")
    if not troubles:
        exact = sum(served.predicted_tokens == served.prompt_tokens for served in play.served)
        console.print(
            f"\nAll as it should be. Prompt tokens predicted before sending: {exact} of {len(play.served)} exact, by "
            "the engine's usage. Nothing is held after the burst."
        )
    return troubles


def _keep(console: Console, servers: Servers) -> None:
    url = servers.gateway.url
    console.print(f"\nThe gateway stays at {url} (metrics: {url}/metrics, emulated vLLM: {servers.engine.url}). Try:\n")
    console.print(_SNIPPET.format(url=url, model=model.NAME, pixel=_PIXEL), markup=False, soft_wrap=True)
    console.print("Ctrl-C stops everything.")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            servers.check()
            _pause()


def _pause() -> None:
    time.sleep(_WATCH_SECONDS)


@contextlib.contextmanager
def _told(console: Console) -> Iterator[Tell]:
    """A line that says what is going on: one that changes in a terminal, a new one each time elsewhere."""
    if not console.is_terminal:
        yield lambda text: console.print(f"- {text}")
        return
    with console.status("") as status:
        yield status.update


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: with everything stopped."""
    # What is ignored stays ignored: nohup and the like want it so.
    signals = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
