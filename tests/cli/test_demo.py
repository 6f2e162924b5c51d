"""`vlm-gateway demo`: played for real once; and what it says when something does not behave."""

import contextlib
import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.demo import model, performance, servers
from gateway.cli.demo.acts import Burst, BurstAnswer, PictureSeen, Play, Served, Turn
from gateway.cli.demo.meter import Reading
from gateway.cli.demo.pictures import PHOTOGRAPH, Picture, photograph, screenshot
from gateway.cli.demo.tables import burst_table, done_to, pictures_table, refusal_lines, turns_table
from gateway.cli.demo.verdict import complaints
from gateway.domain.geometry import Size

MARK = "VLM_GATEWAY_TEST_RUN"


@contextlib.contextmanager
def demo_process(tmp_path, *options):
    """The command in a process of its own. Yields it and a function that counts all processes that are left of it."""
    mark = uuid.uuid4().hex
    environment = os.environ | {
        MARK: mark,
        "TMPDIR": str(tmp_path),
        "GATEWAY_QUEUE__REQUESTS": "0",
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "demo", *options], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process, lambda word="": processes_with(mark, word)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def processes_with(mark, word=""):
    """Those that were started with the mark; with `word`, those of them that have it on their command line."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes() and word.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
    return found


def read_until(process, text):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} did not come:\n{''.join(lines)}")


def gone_within(seconds, left):
    give_up_at = time.monotonic() + seconds
    while left() and time.monotonic() < give_up_at:
        time.sleep(0.1)
    return not left()


def test_the_whole_demo_its_snippet_and_its_end(capsys, monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("GATEWAY_QUEUE__REQUESTS", "0")  # the user's own gateway is no business of the demo
    outputs = []

    def try_the_snippet_and_leave():
        output = capsys.readouterr().out
        assert [len(processes_with(mark, word)) for word in ("\0serve", "\0emulate")] == [1, 1]
        exec(output[output.index("from openai") : output.index("Ctrl-C")], {})
        outputs.extend((output, capsys.readouterr().out))
        raise KeyboardInterrupt

    monkeypatch.setattr(performance, "_pause", try_the_snippet_and_leave)
    assert performance.perform(keep=True) == 0
    assert [processes_with(mark, word) for word in ("\0serve", "\0emulate")] == [[], []]
    assert gone_within(5, lambda: processes_with(mark))  # what counts the workers' semaphores leaves a moment later
    output, answer = outputs
    assert "'x-gateway-visual-tokens': '6'" in answer
    for expected in (
        "- conversation: turn 20 of 20",
        "12 MP photograph",
        "resized 4000x3000 -> 1820x1372",
        "15,303 -> 3,187",
        "trimming begins at turn 11",
        "admitted after waiting",
        "24 of 24 exact",
    ):
        assert expected in output


def test_in_a_terminal_one_line_says_how_far_it_is():
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    with performance._told(console) as tell:
        tell("turn 3")
    assert "turn 3" in console.file.getvalue()


def test_an_interrupted_demo_exits_130(monkeypatch):
    monkeypatch.setattr(performance, "running_servers", interrupted)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (130, "Stopped.")


@contextlib.contextmanager
def interrupted():
    raise KeyboardInterrupt
    yield


def program(tmp_path, text):
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    log = tmp_path / "log"
    log.write_text("last words")
    return servers.Server("gateway", "http://127.0.0.1:1", process, log)


def test_a_server_that_does_not_listen_to_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "_STOP_SECONDS", 0.1)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    server = program(tmp_path, deaf)
    server.stop()
    assert server.process.returncode == -signal.SIGKILL


def test_a_server_that_ends_by_itself_is_told(tmp_path):
    running = program(tmp_path, "import time; print('ready', flush=True); time.sleep(60)")
    ended = program(tmp_path, "print('ready', flush=True)")
    ended.process.wait()
    try:
        with pytest.raises(servers.ServerFailedError, match=r"the gateway did not run \(exit code 0\).*\nlast words"):
            servers.Servers(running, ended).check()
    finally:
        running.stop()


def test_a_demo_that_is_terminated_takes_its_servers_with_it(tmp_path):
    with demo_process(tmp_path) as (process, left):
        read_until(process, "making a 12 MP photograph")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        assert left() == []


def test_a_demo_that_is_killed_takes_its_servers_with_it(tmp_path):
    with demo_process(tmp_path) as (process, left):
        read_until(process, "making a 12 MP photograph")
        assert [len(left(word)) for word in ("\0demo", "\0emulate", "\0serve")] == [1, 1, 1]
        process.kill()
        process.wait()
        assert gone_within(10, left)


def test_a_server_that_does_not_start_is_told_with_its_log(monkeypatch):
    monkeypatch.setattr(servers, "emulator_command", lambda _port: ["emulate", "--no-such-option"])
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert "The demo failed: the emulator did not run (exit code 2)" in result.output
    assert "No such option" in result.output


def test_without_the_sdk_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    for name in [name for name in sys.modules if name.startswith("gateway.cli.demo.")]:
        monkeypatch.delitem(sys.modules, name)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'vlm-gateway[demo]'" in result.stderr


def test_a_photograph_is_as_heavy_as_one():
    picture = photograph()
    image = Image.open(io.BytesIO(picture.file))
    assert (image.format, image.size) == ("JPEG", (PHOTOGRAPH.width, PHOTOGRAPH.height))
    assert 2e6 < len(picture.file) < 4e6


def test_each_seed_makes_another_screenshot_and_always_the_same():
    first, again, other = (screenshot(Size(640, 400), seed) for seed in (1, 1, 2))
    assert first.file == again.file != other.file
    assert first.part["image_url"]["url"].startswith("data:image/png;base64,")


def test_the_model_costs_what_qwen2_5_vl_7b_costs():
    files = model.describe()
    assert (files.text.kv_bytes_per_token, files.embedding_bytes) == (57_344, 7_168)


def test_a_reading_adds_up_what_carries_the_labels_that_are_asked_for():
    before = Reading({("images_total", (("action", "trimmed"), ("format", "png"))): 2.0})
    after = Reading(
        {
            ("images_total", (("action", "trimmed"), ("format", "png"))): 5.0,
            ("images_total", (("action", "trimmed"), ("format", "jpeg"))): 1.0,
            ("images_total", (("action", "kept"), ("format", "jpeg"))): 9.0,
        }
    )
    assert after.sum("images_total") == 15
    assert after.since(before, "images_total", action="trimmed") == 4
    assert after.sum("nothing") == 0


def served(*, visual=100, predicted=120, counted=120, changes=""):
    headers = {"x-gateway-visual-tokens": str(visual), "x-gateway-prompt-tokens": str(predicted)}
    headers |= {"x-gateway-images": changes} if changes else {}
    return Served(0.5, headers, counted, visual - 2, 0, "text")


PICTURE = PictureSeen(
    Picture("photograph", Size(400, 300), "image/jpeg", b"x" * 2_000_000),
    served(visual=200),
    served(changes="0;resized;400x300;200x150;scale=2.000000x2.000000"),
)
TURNS = [Turn(1, 1, 1, 0, 0, 0.04, served()), Turn(2, 2, 1, 1, 0, 0.03, served())]
SERVED_AT_ONCE = BurstAnswer(200, answered_seconds=0.5)
SERVED_LATER = BurstAnswer(200, answered_seconds=2.5, waited_seconds=1.5)
REFUSED = BurstAnswer(429, 0.1, reason="queue_full", message="The queue [is] full.", retry_after="60")
PROMISED = [
    BurstAnswer(503, 2.0, reason="deadline_passed", message="In vain.", retry_after=str(delay)) for delay in (1, 9)
]
BURST = Burst((SERVED_AT_ONCE, SERVED_LATER, REFUSED, *PROMISED), 0, 0)
PLAY = Play([PICTURE], TURNS, BURST)


def test_a_demo_as_it_should_be_leaves_nothing_to_complain_of():
    assert complaints(PLAY) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"turns": [Turn(1, 1, 1, 0, 0, 0.0, served(predicted=120, counted=121)), TURNS[1]]},
            "1 of 4 predictions were wrong: first 120 prompt tokens predicted, 121 counted by the engine.",
        ),
        (
            {"pictures": [dataclasses.replace(PICTURE, after=PICTURE.before)]},
            "The photograph did not become cheaper: 200 tokens as it came, 200 after.",
        ),
        ({"turns": TURNS[:1]}, "Nothing was trimmed, although the conversation outgrew the context."),
        (
            {"turns": [TURNS[1], Turn(3, 3, 3, 1, 2, 0.0, served())]},
            "Turn 3: 3 images were sent, 1 left out and 3 forwarded; the sum is wrong.",
        ),
        (
            {"turns": [TURNS[1], Turn(3, 3, 3, 0, 1, 0.0, served())]},
            "Turn 3: 2 forwarded images were sent before, but only 1 hit the engine's cache: their bytes changed.",
        ),
        ({"burst": dataclasses.replace(BURST, answers=BURST.answers[1:])}, "Nobody of the burst was admitted at once."),
        ({"burst": dataclasses.replace(BURST, answers=(SERVED_AT_ONCE, REFUSED))}, "Nobody of the burst waited."),
        (
            {"burst": dataclasses.replace(BURST, answers=(SERVED_AT_ONCE, SERVED_LATER))},
            "Nobody of the burst was refused.",
        ),
        (
            {
                "burst": dataclasses.replace(
                    BURST, answers=(*BURST.answers, BurstAnswer(502, 0.1, 0.0, "down", "", "1"))
                )
            },
            "Refusals of the burst had the status 502 instead of 429 or 503.",
        ),
        (
            {"burst": dataclasses.replace(BURST, answers=(*BURST.answers, BurstAnswer(429, 0.1, 0.0, "queue_full")))},
            "A refusal of the burst named no Retry-After.",
        ),
        (
            {"burst": dataclasses.replace(BURST, held_blocks_after=7.0)},
            "After the burst 7 KV blocks are still held and 0 requests still wait.",
        ),
    ],
)
def test_what_does_not_behave_is_said_in_a_sentence(changes, complaint):
    assert complaints(dataclasses.replace(PLAY, **changes)) == [complaint]


def text_of(*printables):
    console = Console(width=140, file=io.StringIO())
    for printable in printables:
        console.print(printable)
    return " ".join(console.file.getvalue().split())


def test_a_picture_is_told_with_its_cost_before_and_after():
    text = text_of(pictures_table([PICTURE], model.describe()))
    assert "photograph 400x300 JPEG, 1.91 MiB resized 400x300 -> 200x150 200 -> 100 11 -> 5 1 -> 1 0.5 -> 0.5" in text
    assert "57,344 bytes of KV cache a token, 7,168 bytes an encoder embedding (3,584 numbers x 2)" in text


def test_what_was_done_to_a_picture_in_words():
    assert done_to("") == "sent on untouched"
    assert done_to("0;normalised;400x300") == "normalised 400x300"
    assert done_to("0;trimmed") == "trimmed"


def test_the_conversation_says_where_trimming_begins():
    assert "trimming begins at turn 2" in text_of(turns_table(TURNS, model.describe()))
    assert "nothing was trimmed" in text_of(turns_table(TURNS[:1], model.describe()))


def test_the_burst_is_told_by_outcome():
    text = text_of(burst_table(BURST), *refusal_lines(BURST))
    assert "admitted at once 1 0.00 0.00 0.50 0.50 -" in text
    assert "admitted after waiting 1 1.50 1.50 2.50 2.50 -" in text
    assert "refused: 429 queue_full 1 - - 0.10 0.10 60" in text
    assert "refused: 503 deadline_passed 2 - - 2.00 2.00 1 to 9" in text
    assert "429 queue_full: The queue [is] full." in text


def test_a_demo_that_shows_something_wrong_exits_1(monkeypatch):
    async def play(_servers, _tell):
        return dataclasses.replace(PLAY, burst=dataclasses.replace(BURST, queue_depth_after=1.0))

    monkeypatch.setattr(performance, "_play", play)
    monkeypatch.setattr(performance, "running_servers", contextlib.nullcontext)
    result = CliRunner().invoke(app, ["demo", "--keep"])
    assert result.exit_code == 1
    assert "Not as it should be: After the burst 0 KV blocks are still held and 1 requests still wait." in result.output
