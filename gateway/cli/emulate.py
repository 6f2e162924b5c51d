"""`vlm-gateway emulate`: a vLLM 0.32 stand-in on a port, no GPU and no weights."""

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.options import fail
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.kv_groups import blocks_of_longest
from gateway.emulator.serve import serve


class Family(StrEnum):
    """The model families that the emulator can count for."""

    qwen2_vl = "qwen2_vl"
    qwen2_5_vl = "qwen2_5_vl"
    qwen3_vl = "qwen3_vl"


class Runner(StrEnum):
    """What the emulated server does with a prompt."""

    generate = "generate"
    pooling = "pooling"


class Profile(StrEnum):
    """How fast the emulated hardware is."""

    small_gpu = "small-gpu"
    fast = "fast"


MaxModelLen = Annotated[
    int, typer.Option(help="Context length. Prompt, its image tokens and the answer share it.", min=1)
]
NumGpuBlocks = Annotated[
    int,
    typer.Option(
        help="KV cache in blocks; one is kept back. Too few make requests wait and be preempted, and a prompt larger "
        "than all of them blocks the queue for ever, as in vLLM.",
        min=2,
    ),
]
MaxNumBatchedTokens = Annotated[
    int,
    typer.Option(help="Prompt tokens and answers worked on in one step; longer prompts are cut into chunks.", min=1),
]
MaxNumQueuedReqs = Annotated[
    int | None, typer.Option(help="vLLM's own load shedding: 503 beyond so many unfinished. Default: no limit.", min=1)
]
MaxPixels = Annotated[
    int | None,
    typer.Option(help="Largest area an image keeps (`--mm-processor-kwargs`). Default: the family's.", min=1),
]
SlidingWindow = Annotated[
    int | None,
    typer.Option(
        help="Tokens that some layers look back, as in Gemma 3: their KV groups hold no more. Default: all see all.",
        min=2,
    ),
]
SlidingWindowGroups = Annotated[
    int, typer.Option(help="KV groups of layers with a sliding window, beside the one of full attention.", min=1)
]
Work = Annotated[Runner, typer.Option(help="pooling: embed, classify, score and rerank, and generate nothing.")]
VideoLimit = Annotated[
    int, typer.Option(help="Videos in one request, as lists of JPEG files (data:video/jpeg).", min=0)
]
Details = Annotated[bool, typer.Option(help="Report cached and image tokens in usage.")]
Speed = Annotated[Profile, typer.Option(help="small-gpu: realistic waiting. fast: work takes no time, for load tests.")]
StepCostFactor = Annotated[
    float, typer.Option(help="Factor on the time of each engine step: 2 is half as fast, 0 takes no time.", min=0)
]
StepSeconds = Annotated[
    float | None,
    typer.Option(help="What a step takes before any token, in place of the profile's 0.008 s or 0.", min=0),
]
PixelsPerSecond = Annotated[
    float | None,
    typer.Option(
        help="Speed of the one thread that preprocesses pictures, in place of the profile's 20 million or no limit.",
        min=1,
    ),
]


def emulate(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65_535)] = 8000,
    model: Annotated[str, typer.Option(help="Name that /v1/models tells and that requests ask for.")] = "tiny",
    runner: Work = Runner.generate,
    dev_mode: Annotated[bool, typer.Option(help="Have the routes of VLLM_SERVER_DEV_MODE that empty caches.")] = False,
    family: Annotated[Family, typer.Option(help="Decides how many tokens an image becomes.")] = Family.qwen2_5_vl,
    max_model_len: MaxModelLen = 32_768,
    num_gpu_blocks: NumGpuBlocks = 8_192,
    block_size: Annotated[int, typer.Option(help="Tokens in a KV block: 16 on most GPUs, 128 on CPU.", min=1)] = 16,
    max_num_seqs: Annotated[int, typer.Option(help="Answers generated at the same time.", min=1)] = 256,
    max_num_batched_tokens: MaxNumBatchedTokens = 2_048,
    image_limit: Annotated[int, typer.Option(help="Images in one request, over all its turns.", min=0)] = 999,
    video_limit: VideoLimit = 0,
    max_num_queued_reqs: MaxNumQueuedReqs = None,
    max_pixels: MaxPixels = None,
    sliding_window: SlidingWindow = None,
    sliding_window_groups: SlidingWindowGroups = 5,
    prefix_caching: Annotated[bool, typer.Option(help="Share KV blocks between equal prompt beginnings.")] = True,
    enable_prompt_tokens_details: Details = False,
    profile: Speed = Profile.small_gpu,
    step_cost: StepCostFactor = 1.0,
    step_seconds: StepSeconds = None,
    preprocess_pixels_per_second: PixelsPerSecond = None,
) -> None:
    """Serve a stand-in for vLLM 0.32: its routes, errors, metrics and queueing, with made-up answers.

    Pictures are really decoded and counted; their preprocessing runs on one thread, as in vLLM. To try the gateway:

        vlm-gateway emulate --port 8000 --num-gpu-blocks 1024

        vlm-gateway serve --upstream http://127.0.0.1:8000

    `curl -X POST localhost:8000/emulator/faults -d '{"freeze": true}'` breaks it on purpose.
    """
    base = EmulatorConfig.fast() if profile is Profile.fast else EmulatorConfig()
    config = dataclasses.replace(
        base,
        model=model,
        runner=runner.value,
        dev_mode=dev_mode,
        family=family.value,
        max_model_len=max_model_len,
        num_gpu_blocks=num_gpu_blocks,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        image_limit=image_limit,
        video_limit=video_limit,
        max_num_queued_reqs=max_num_queued_reqs,
        max_pixels=max_pixels,
        sliding_window=sliding_window,
        sliding_window_groups=sliding_window_groups,
        enable_prefix_caching=prefix_caching,
        enable_prompt_tokens_details=enable_prompt_tokens_details,
        step_cost=_step_cost(base.step_cost.scaled(step_cost), step_seconds),
        preprocess_pixels_per_second=preprocess_pixels_per_second or base.preprocess_pixels_per_second,
    )
    _serve(config, host, port)


def _serve(config: EmulatorConfig, host: str, port: int) -> None:
    try:
        serve(config, host, port, on_listening=lambda url: _announce(config, url))
    except OSError as error:
        fail(f"{host}:{port} cannot be listened on: {error.strerror}. Give another --port; 0 picks a free one.", 1)


def _step_cost(scaled: StepCost, base_seconds: float | None) -> StepCost:
    return scaled if base_seconds is None else dataclasses.replace(scaled, base_seconds=base_seconds)


def _announce(config: EmulatorConfig, url: str) -> None:
    pool_tokens = int(config.num_gpu_blocks / blocks_of_longest(config) * config.max_model_len)
    typer.echo(f"Emulated vLLM 0.32.0 serves {config.model} ({config.family}) on {url}")
    typer.echo(f"GPU KV cache size: {pool_tokens:,} tokens, context {config.max_model_len:,} tokens")
