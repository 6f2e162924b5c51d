"""The README's claims, run: its commands exist, its settings load, its snippet works, its headers come."""

import asyncio
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from math import inf

import pybase64
import pytest
import yaml
from typer.testing import CliRunner

from gateway.access import tenancy_of, tenants_of
from gateway.cli import app
from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat
from gateway.domain.outcome import Fate
from gateway.domain.pressure import CALM_SECONDS, UNMET_SECONDS, Rung
from gateway.domain.priority import Priority
from gateway.domain.resize import OPT_OUT, Preset
from gateway.domain.vision.registry import FAMILIES
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from gateway.imaging.pillow import DECODABLE
from gateway.imaging.strikes import MOST_STRIKES
from gateway.pipeline.token_counts import MOST_LISTED_TOKENS
from gateway.policies import upstreams_of
from gateway.settings import Settings
from gateway.settings_sources import load
from gateway.telemetry.declarations import OBSERVED, RECORDED, SHADOW_DECISIONS
from gateway.wire.declare import shadow_headers
from tests.domain.test_pressure_effect import LEVEL_SECONDS, SHRINK, at_times_capacity
from tests.pipeline.test_fallback import servers
from tests.support.clock import FakeClock
from tests.support.homes import picture_at
from tests.support.live_gateway import chat, image, live_gateway, until
from tests.support.model_server import Patient, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.pressed_gateway import AT_A_TENTH, pressed_gateway
from tests.support.raw_http import raw_http_server
from tests.support.readme import README, ROOT, TEXT, said


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def example_of(section):
    """The settings that begin with this section."""
    (example,) = (block for block in blocks("yaml") if block.startswith(f"{section}:"))
    return example


def commands(program):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(program)]


def test_it_says_what_it_is_in_two_lines_and_how_to_start_in_two_commands():
    title, _, first, second, *_ = README.splitlines()
    assert title == "# vlm-gateway"
    assert (first + second).endswith("with the true reason.")
    assert [command[:2] for command in commands("make")] == [["make", "demo"], ["make", "test"]]


def test_its_levels_of_service_are_what_each_request_gets():
    settings = load(file_text=example_of("slo"), file_name="README.md").settings
    tenants = tenants_of(settings)
    assert tenants["default"].levels[Priority.DEFAULT] == (4.0, 15.0)
    assert tenants["default"].levels[Priority.INTERACTIVE] == (1.0, 15.0)
    assert tenants["default"].levels[Priority.BATCH] == (4.0, 600.0)
    assert {level.total_seconds for level in tenants["lab"].levels} == {60.0}


def test_every_make_target_it_names_is_there():
    named = set(re.findall(r"make ([a-z-]+)", README))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_every_command_it_shows_is_understood():
    shown = commands("vlm-gateway")
    named = {command[1] for command in shown}
    assert named == {"serve", "replay", "tokens", "families", "estimate", "plan", "doctor", "check", "emulate"}
    for _, command, *words in shown:
        help_text = CliRunner().invoke(app, [command, "--help"]).output
        assert "Usage" in help_text
        for option in (word for word in words if word.startswith("--")):
            assert option in help_text, f"{command} {option}"


def test_the_replay_examples_run(tmp_path, monkeypatch):
    read, made = [words for words in commands("vlm-gateway") if words[1] == "replay"]
    monkeypatch.chdir(tmp_path)
    for name, text in (("now.yaml", ""), ("next.yaml", "resize: {preset: ocr}\nbudget: {sequences: 8}")):
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, [*made[1:], "--json"])
    assert result.exit_code == 0, result.output
    recorded, after = json.loads(result.stdout.splitlines()[-1])["columns"]
    assert recorded["requests"] == after["requests"] > 500
    assert after["queued"] > 0 < after["shrunk_images"]
    (tmp_path / read[2]).write_bytes(gzip.compress((tmp_path / made[3]).read_bytes()))
    result = CliRunner().invoke(app, [*read[1:], "--json"])
    columns = json.loads(result.stdout.splitlines()[-1])["columns"]
    assert [each["name"] for each in columns] == ["recorded", "now", "next"]
    for row in ("admitted at once", "queued", "wait p50 / p99", "refused", "shrunk", "left out", "first token"):
        assert row in result.stdout


def test_a_replayed_day_is_not_waited_for(tmp_path):
    made = CliRunner().invoke(
        app, ["replay", "--generate", str(tmp_path / "day.jsonl"), "--hours", "24", "--rate", "0.002"]
    )
    result = CliRunner().invoke(app, ["replay", str(tmp_path / "day.jsonl"), "--set", "budget.sequences=20"])
    assert f"{re.search(r'([0-9,]+ requests)', made.stderr)[1]} in 23.4 h" in result.output


async def test_shadow_mode_says_what_would_have_been(emulator):
    (first, *_) = re.findall(r"`(x-gateway-shadow[a-z-]*)`", README)
    async with live_gateway(emulator.base_url, models=[], mode="shadow", server={"max_body_bytes": 10}) as gateway:
        answer = await gateway.http.post("/v1/chat/completions", json=chat())
        assert answer.status_code == 404  # the emulator's own: it has another model
        assert answer.headers[first] == "refused;reason=body_too_large;status=413"
        await gateway.until_released()
        assert gateway.rejected() == {}
        assert gateway.metrics("gateway_shadow_decisions_total")


def test_the_words_of_shadow_mode_are_those_that_are_said():
    (shown,) = re.findall(r"of it stands in `x-gateway-shadow` \((.*?)\) and", TEXT)
    full = GatewayError(Code.RATE_LIMIT_EXCEEDED, "The queue is full.")
    fates = ((Fate.ADMITTED, None), (Fate.QUEUED, None), (Fate.REFUSED, full))
    told = [value.decode() for fate, error in fates for _, value in shadow_headers(fate, error, 0.812)]
    assert re.findall("`(.*?)`", shown) == told


async def test_a_deadline_ends_the_wait_when_it_says():
    """The clock is the test's, and the only place is taken."""
    (milliseconds,) = re.findall(r"`x-gateway-deadline-ms: (\d+)`", README)
    (seconds,) = said("ends the wait for a place # seconds after arrival")
    clock, patient = FakeClock(), Patient()
    async with (
        model_server(patient) as upstream,
        live_gateway(upstream.base_url, clock=clock, budget={"sequences": 1}) as gateway,
    ):
        first = asyncio.create_task(gateway.chat())
        await until(lambda: len(posts(upstream)) == 1)
        hasty = asyncio.create_task(gateway.chat(headers={"x-gateway-deadline-ms": milliseconds}))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
        clock.advance(seconds - 0.01)
        assert gateway.metrics("gateway_queue_depth") == {"": 1}
        clock.advance(0.01)
        assert (await hasty).headers["x-gateway-reason"] == "deadline_passed"
        patient.may_answer.set()
        assert (await first).status_code == 200


def test_the_tokens_example_runs():
    (command,) = [words for words in commands("vlm-gateway") if words[1] == "tokens" and "--family" in words]
    result = CliRunner().invoke(app, command[1:])
    assert result.exit_code == 0
    assert "2691" in result.output
    assert "15301" in result.output


def test_the_settings_example_loads():
    example = example_of("upstream")
    settings = load(file_text=example, file_name="README.md").settings
    assert settings.models[0].family in FAMILIES
    assert settings.queue.requests == yaml.safe_load(example)["queue"]["requests"]
    (key,) = re.findall(r"printf %s (\S+) \| sha256sum", example)
    assert tenancy_of(settings).tenant_of(key.encode(), 0.0).name == settings.tenants[0].name


def test_the_ladder_it_shows_has_the_defaults():
    example = example_of("pressure")
    switched_on = load(flags={f"pressure.{rung}": "on" for rung in Rung}).settings.pressure
    assert load(file_text=example, file_name="README.md").settings.pressure == switched_on
    assert CALM_SECONDS == 5
    assert "below `leave` for five seconds" in README
    assert UNMET_SECONDS == 10
    assert "within the last ten seconds counts as well, except for `shed` and `refuse`" in README
    assert Preset.OCR.area_pixels == 1280 * 1280


def test_the_ladders_worth_is_what_the_simulation_shows():
    (times, least) = re.search(r"serves (\S+) times as\nmany requests, more than (\d) times as", README).groups()
    freely, in_time = (
        at_times_capacity(3.0, SHRINK, level).served / at_times_capacity(3.0, {}, level).served
        for level in (inf, LEVEL_SECONDS)
    )
    assert f"{freely:.1f}" == times
    assert in_time > int(least)
    assert f"its first token within {LEVEL_SECONDS:g} s" in README
    assert "at 0.7 times as many, none\nis shrunk" in README
    assert at_times_capacity(0.7, SHRINK).shrunk == 0


async def test_the_rungs_that_changed_a_request_are_told_as_it_says():
    (shown,) = re.findall(r"because of pressure: `(.*?)`", README)
    photo = image(data_url(encoded(picture(1400, 1400))))
    async with pressed_gateway({"shrink": AT_A_TENTH, "max_tokens": AT_A_TENTH}) as pressed:
        answer = await pressed.gateway.chat("What?", photo)
    assert answer.headers["x-gateway-pressure"] == shown


def test_the_example_of_several_servers_loads():
    settings = load(file_text=example_of("upstreams"), file_name="README.md").settings
    assert [(each.name, each.kv_blocks) for each in upstreams_of(settings)] == [("a", None), ("b", 20_000)]
    assert [model.fallback for model in settings.models] == ["small", None]
    assert "gateway_sent_elsewhere_total" in README


async def test_before_several_servers_a_picture_stays_where_it_is_until_that_server_fails():
    photo = picture_at("a")
    with running_emulator() as a, running_emulator() as b:
        async with live_gateway({"a": a.base_url, "b": b.base_url}) as gateway:
            await gateway.until_up()
            for question in ("What?", "Where?"):
                assert (await gateway.chat(question, photo)).status_code == 200
            assert (a.statistics().finished, b.statistics().finished) == (2, 0)
            a.set_faults(kill=True)
            assert (await gateway.chat("When?", photo)).status_code == 200
            assert gateway.metrics("gateway_sent_elsewhere_total") == {'{upstream="a"}': 1}
            await until(gateway.application.troubles)
            assert "model server a is down" in (await gateway.http.get("/readyz")).json()["but"]
            assert (await gateway.chat("Who?", photo)).status_code == 200
            assert b.statistics().finished == 2


def test_the_environment_example_loads():
    (assignment,) = re.findall(r"`(GATEWAY_[A-Z_]+=\S+)`", README)
    name, _, value = assignment.partition("=")
    assert load(environment={name: value}).settings.server.port == int(value)


@pytest.fixture
def emulator():
    with running_emulator(EmulatorConfig.fast(model="Qwen/Qwen2.5-VL-7B-Instruct")) as server:
        yield server


async def test_the_snippet_runs_as_it_stands_before_the_gateway(emulator, tmp_path):
    (snippet,) = blocks("python")
    payload = pybase64.b64encode(encoded(picture(640, 480))).decode()
    async with live_gateway(emulator.base_url, models=[]) as gateway:
        await gateway.until_up()
        text = snippet.replace("http://127.0.0.1:8080", f"http://{gateway.host}:{gateway.port}")
        script = tmp_path / "snippet.py"
        script.write_text(f"PICTURE = {payload!r}\n{text}")
        answer = await _run(script)
    tokens, _, words = answer.partition(" ")
    assert int(tokens) == 17 * 23 + 2  # 640x480 on a grid of 28, and the two markers
    assert words.strip()


async def _run(script):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_the_preflight_example_is_what_is_answered():
    (example,) = [json.loads(block) for block in blocks("json")]
    photos = [image(data_url(encoded(picture(1680, 1260, seed=seed)))) for seed in (1, 2)]
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    with running_emulator(EmulatorConfig.fast(model=model, max_model_len=4096)) as emulator:
        async with live_gateway(emulator.base_url, models=[]) as gateway:
            await gateway.until_up()
            body = chat("Which is sharper?", *photos, model=model)
            answer = await gateway.http.post("/gateway/preflight", json=body)
    assert example == {name: answer.json()[name] for name in example}


async def test_the_headers_it_lists_come():
    """Those of requests are not among them."""
    listed = set(re.findall(r"`(x-gateway-[a-z-]+)`[,|` ]", README))
    with running_emulator() as emulator:
        async with live_gateway(emulator.base_url) as gateway:
            answers = await _one_served_one_refused_and_one_counted(gateway)
        async with live_gateway(emulator.base_url, models=[{"name": "tiny", "family": "h2ovl"}]) as gateway:
            answers += (await gateway.chat("What?", image(data_url(encoded(picture(9, 9))))),)
    assert [answer.status_code for answer in answers] == [200, 404, 200, 200]
    async with servers() as two:
        await two.hold("large", two.large)
        answers += (await two.ask(),)
    ladder, small = {"max_tokens": AT_A_TENTH}, {"preset": "thumbnail"}
    async with pressed_gateway(ladder, mode="shadow", resize=small) as pressed:
        answers += (await pressed.gateway.chat("What?", image(data_url(encoded(picture(1400, 1400)))), max_tokens=900),)
    async with model_server() as upstream, live_gateway(upstream.base_url, models=[]) as gateway:
        answers += (await gateway.chat(image(data_url(encoded(picture(56, 56))))),)  # of unknown family
    assert listed == {name for answer in answers for name in answer.headers if name.startswith("x-gateway-")}


def test_the_words_of_headers_that_it_lists_are_those_that_are_known():
    (sentence,) = re.findall(r"A request may ask for less with `x-gateway-resize: (.*?); it is then", TEXT)
    assert set(re.findall(r"`?(?:x-gateway-resize: )?(\w+)`", sentence)) == {*Preset, OPT_OUT}


async def test_what_it_calls_unsupported_is_refused_with_a_sentence_that_says_so():
    (listed,) = re.findall(r"Not yet supported, and refused with a sentence that says so: (.*?)\. An image", TEXT)
    parts = {
        "embeddings as input": {"type": "image_embeds", "image_embeds": "AAAA"},
        "`file` parts": {"type": "file", "file": {"file_id": "1"}},
    }
    assert set(listed.split(" and ")) == parts.keys()
    async with live_gateway("http://127.0.0.1:9", tokens={"answer": "estimate"}) as gateway:
        refused = [await gateway.chat(part) for part in parts.values()]
        counted = await gateway.http.post("/v1/messages/count_tokens", json=chat("What?"))
    assert [answer.status_code for answer in refused] == [400] * len(parts)
    for answer in refused:
        assert re.search("not (yet )?(supported|inspected)", answer.json()["error"]["message"])
    assert counted.status_code == 200


def test_the_formats_it_names_are_those_that_are_read():
    (listed,) = re.findall(r"([A-Za-z, ]+) and ICO are read, HEIC with the extra `heic`", TEXT)
    named = {name.strip().lower() for name in listed.split(",")} | {"ico", "heic"}
    assert named == set(ImageFormat)
    assert set(ImageFormat) - DECODABLE <= {ImageFormat.HEIC}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(each.startswith("pillow-heif") for each in extras["heic"])
    assert "With the extra `vips`, PNG and WebP are shrunk by libvips" in TEXT
    assert any(each.startswith("pyvips[binary]") for each in extras["vips"])


def test_the_limits_and_the_counter_of_hostile_pictures_are_what_it_says():
    (seconds,) = said("memory and CPU (`images.decode_seconds`, #)")
    assert Settings().images.decode_seconds == seconds
    assert said("one that has ended # processes is refused from then on") == (MOST_STRIKES,)
    assert "image_workers_lost_total" in {declaration.name for declaration in OBSERVED}


def test_the_settings_of_images_by_address_are_the_defaults_but_for_the_network():
    remote = load(file_text=example_of("images"), file_name="README.md").settings.images.remote
    assert [str(network) for network in remote.allow_networks] == ["10.20.0.0/16"]
    assert remote.model_copy(update={"allow_networks": ()}) == Settings().images.remote


async def test_an_image_by_address_is_fetched_and_sent_on_as_data_and_nothing_inside_is_asked():
    said("fetched here, once, then checked, counted and sent on as data")
    said("Only addresses of the public internet are asked")
    said("What a host does wrong is a 400 that says what it was")
    file = encoded(picture(56, 56))

    async def serve(visit):
        is_there = visit.path == "/a.png"
        await visit.answer(
            "200 OK" if is_there else "404 Not Found", file if is_there else b"", "cache-control: max-age=60"
        )

    async with raw_http_server(serve) as host, model_server() as upstream:
        remote = {"allow_ports": [int(host.base_url.rpartition(":")[2])]}
        async with live_gateway(upstream.base_url, images={"remote": remote}) as closed:
            inside = await closed.chat(image(f"{host.base_url}/a.png"))
        assert (inside.status_code, host.visits) == (400, [])
        remote["allow_networks"] = ["127.0.0.0/8"]
        async with live_gateway(upstream.base_url, images={"remote": remote}) as gateway:
            for _ in range(2):
                await gateway.chat(image(f"{host.base_url}/a.png"))
            gone = await gateway.chat(image(f"{host.base_url}/b.png"))
    assert [visit.path for visit in host.visits] == ["/a.png", "/b.png"]
    assert all(b"data:image/png;base64," in visit.body for visit in posts(upstream))
    assert gone.status_code == 400
    assert "status 404" in gone.json()["error"]["message"]


def test_its_table_of_steps_ends_with_every_status_that_a_request_may_get():
    """A fault of the gateway's own (500) is no step."""
    _, table = README.split("| step | what happens | may end with |\n|---|---|---|\n")
    rows = [row.strip("|").split("|") for row in table.split("\n\n")[0].splitlines()]
    statuses = {int(status) for *_, ends in rows for status in re.findall(r"\d{3}", ends)}
    assert statuses == {GatewayError(code, "").status for code in Code} - {500}


def test_it_counts_the_families_whose_tokens_are_exact():
    (count,) = re.findall(r"exact visual tokens \((\d+) families", TEXT)
    assert int(count) == len(FAMILIES)


def test_every_metric_it_names_is_declared():
    declared = {each.full_name for each in (*RECORDED, *OBSERVED, SHADOW_DECISIONS)}
    assert (named := set(re.findall(r"\bgateway_[a-z_]+", README))) >= {"gateway_capacity", "gateway_upstream_healthy"}
    assert named <= declared


def test_every_setting_it_names_is_there():
    settings = Settings()
    dotted = set(re.findall(r"`((?:server|budget|queue|upstream)\.[a-z_]+)(?:=\S+)?`", README))
    assert {"server.seats", "budget.body_bytes", "queue.wait_seconds"} <= dotted
    for section, name in (each.split(".") for each in dotted):
        assert name in type(getattr(settings, section)).model_fields
    shown = re.findall(r"`((?!data:)[a-z_]+: \{.*?\})`", README)
    assert len(shown) >= 3
    for each in shown:
        load(file_text=each, file_name="README.md")


def test_every_room_it_names_is_there():
    (sentence,) = re.findall(r"`gateway/domain` is pure .*?the side to clients", TEXT)
    rooms = re.findall(r"`(?:gateway/)?([a-z]+)`", sentence)
    assert len(rooms) == 8
    for room in rooms:
        assert (ROOT / "gateway" / room / "__init__.py").is_file(), room


async def test_its_probes_and_pages_are_there():
    (probes,) = re.findall(r"Probes: (.*?)\. `/metrics`", TEXT)
    async with live_gateway("http://127.0.0.1:9") as gateway:
        states = {path: (await gateway.http.get(path)).status_code for path in re.findall(r"`(/\w+)`", probes)}
        pages = [(await gateway.http.get(path)).status_code for path in ("/metrics", "/docs")]
    assert states == {"/livez": 200, "/startupz": 200, "/readyz": 503}
    assert "`/readyz` (503 while vLLM is away)" in probes
    assert pages == [200, 200]


async def _one_served_one_refused_and_one_counted(gateway):
    url = "data:image/png;base64," + pybase64.b64encode(encoded(picture(1, 1))).decode()
    body, asked = chat("What?", image(url)), {"x-gateway-tokens": "estimate"}
    return (
        await gateway.chat("What?", image(url)),
        await gateway.http.get("/nowhere"),
        await gateway.http.post("/tokenize", json=body, headers=asked),
    )


async def test_a_stream_that_waits_is_begun_as_it_says():
    (setting,) = re.findall(r"`(streaming: \{.*?\})`", README)
    asked = yaml.safe_load(setting)
    assert load(file_text=setting, file_name="README.md").settings.streaming.keep_alive_every_seconds == 10
    asked["streaming"] = dict.fromkeys(asked["streaming"], 0.1)
    sections = asked | {"budget": {"sequences": 1}, "queue": {"wait_seconds": 0.5}}
    slow = EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))
    with running_emulator(slow) as emulator:
        async with live_gateway(emulator.base_url, **sections) as gateway:
            first = asyncio.create_task(gateway.chat(max_tokens=200, ignore_eos=True))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            stream, whole = await asyncio.gather(gateway.chat(stream=True), gateway.chat())
            await first
    assert (stream.status_code, whole.status_code) == (200, 503)
    assert stream.text.startswith(": waiting\n\n")
    assert ": x-gateway-reason: deadline_passed\n" in stream.text
    assert re.search(r'\n\ndata: \{"error":.*\}\n\ndata: \[DONE\]\n\n$', stream.text)


async def test_tokens_are_counted_as_it_says():
    asked = re.findall(r"`(x-gateway-tokens): (estimate)`", README)
    (setting,) = re.findall(r"`(tokens: \{.*?\})`", README)
    assert int(re.search(r"lists the tokens, up to ([\d,]+)", README).group(1).replace(",", "")) == MOST_LISTED_TOKENS
    with running_emulator() as emulator:
        async with live_gateway(emulator.base_url) as gateway:
            counted = await gateway.http.post("/tokenize", json={"prompt": "What?"}, headers=asked)
        async with live_gateway(emulator.base_url, **yaml.safe_load(setting)) as gateway:
            for_all = await gateway.http.post("/v1/messages/count_tokens", json=chat("What?"))
            (word,) = re.findall(r"`x-gateway-tokens: (upstream)`", README)
            headers = {"x-gateway-tokens": word}
            sent_on = await gateway.http.post("/tokenize", json={"prompt": "What?"}, headers=headers)
    assert counted.json()["tokens"] is None
    assert re.fullmatch(r"estimate; lower=\d+; upper=\d+", counted.headers["x-gateway-tokens"])
    assert for_all.json()["input_tokens"] > 0
    assert sent_on.json()["tokens"] is not None


def test_the_compose_file_starts_the_gateway_with_options_that_exist():
    compose = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())
    command, *words = compose["services"]["gateway"]["command"]
    help_text = CliRunner().invoke(app, [command, "--help"]).output
    assert all(word in help_text for word in words if word.startswith("--"))
    upstream = words[words.index("--upstream") + 1]
    assert upstream.startswith("http://vllm:"), "the other service by its name"
