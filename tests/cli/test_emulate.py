"""`vlm-gateway emulate`: options become the emulated server's settings."""

import dataclasses
import re
import socket

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from gateway.cli.emulate import Family, emulate
from gateway.emulator.config import FREE, EmulatorConfig, StepCost
from gateway.emulator.vision import FAMILIES

Served = list[tuple[EmulatorConfig, str, int]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    calls: Served = []

    def serve(config: EmulatorConfig, host: str, port: int, *, on_listening: object) -> None:
        calls.append((config, host, port))
        on_listening("http://127.0.0.1:1234")

    monkeypatch.setitem(emulate.__globals__, "serve", serve)
    return calls


def invoke(*options: str) -> Result:
    app = typer.Typer()
    app.command()(emulate)
    return CliRunner().invoke(app, options)


def run(*options: str) -> str:
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    return result.output


def test_without_options_it_is_the_default_server_on_port_8000(served: Served) -> None:
    output = run()

    assert served == [(EmulatorConfig(), "127.0.0.1", 8000)]
    assert output.splitlines() == [
        "Emulated vLLM 0.32.0 serves tiny (qwen2_5_vl) on http://127.0.0.1:1234",
        "GPU KV cache size: 131,072 tokens, context 32,768 tokens",
    ]


def test_every_option_arrives(served: Served) -> None:
    run(
        *("--host", "::1", "--port", "0", "--model", "m", "--family", "qwen3_vl", "--max-model-len", "512"),
        *("--num-gpu-blocks", "9", "--block-size", "128", "--max-num-seqs", "3", "--max-num-batched-tokens", "64"),
        *("--image-limit", "2", "--max-num-queued-reqs", "5", "--max-pixels", "802816", "--no-prefix-caching"),
        *("--enable-prompt-tokens-details", "--profile", "fast", "--step-cost", "2"),
        *("--sliding-window", "128", "--sliding-window-groups", "3"),
    )

    assert served == [
        (
            EmulatorConfig.fast(
                model="m",
                family="qwen3_vl",
                max_model_len=512,
                num_gpu_blocks=9,
                block_size=128,
                max_num_seqs=3,
                max_num_batched_tokens=64,
                image_limit=2,
                max_num_queued_reqs=5,
                max_pixels=802_816,
                sliding_window=128,
                sliding_window_groups=3,
                enable_prefix_caching=False,
                enable_prompt_tokens_details=True,
            ),
            "::1",
            0,
        )
    ]


@pytest.mark.parametrize(
    "option", ["--num-gpu-blocks=1", "--max-model-len=0", "--block-size=0", "--max-num-seqs=0", "--port=65536"]
)
def test_what_no_server_can_have_is_a_wrong_command_line(option: str, served: Served) -> None:
    result = invoke(option)
    assert (result.exit_code, served) == (2, [])
    assert option.partition("=")[0] in result.stderr


def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("--port", str(port))
    assert result.exit_code == 1
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use. Give another --port" in result.stderr


def test_step_time_and_preprocessing_speed_replace_those_of_the_profile(served: Served) -> None:
    run("--step-cost", "0.5", "--step-seconds", "0.02", "--preprocess-pixels-per-second", "8e7")
    config, _, _ = served[0]
    assert config.step_cost == StepCost(0.02, *(value / 2 for value in dataclasses.astuple(StepCost())[1:]))
    assert config.preprocess_pixels_per_second == 8e7


def test_the_step_cost_is_a_factor(served: Served) -> None:
    run("--step-cost", "0")
    run("--step-cost", "2")

    assert [config.step_cost for config, _, _ in served] == [FREE, EmulatorConfig().step_cost.scaled(2)]


def test_every_family_of_the_emulator_can_be_asked_for() -> None:
    assert [family.value for family in Family] == list(FAMILIES)


def test_the_help_says_what_the_limits_do() -> None:
    words = re.sub(r"[\s│]+", " ", run("--help"))

    assert "blocks the queue for ever" in words
    assert "/emulator/faults" in words
