"""The gateway's settings that follow from a plan, as YAML: the budget, and what a goal says of images."""

import yaml

from gateway.domain.memory.encoder import family_of
from gateway.domain.memory.fit import Goal
from gateway.domain.memory.plan import Plan
from gateway.domain.vision.qwen_vl import QwenVL

_HEAD = """# Made by `vlm-gateway plan` for {model} on {cards} x {gpu}, vLLM {version}:
#   {command}
# The budget is a plan, not a measurement: the gateway takes the server's own number where that is smaller.
# `vlm-gateway check --config` on this file says what the running server has.
"""


def gateway_file(plan: Plan, command: str, upstream: str, goal: Goal | None = None) -> str:
    """One block of the pool is vLLM's own, so it is not the gateway's to share out."""
    settings: dict[str, object] = {
        "upstream": {"url": upstream},
        "models": [_model(plan)],
        "budget": {
            "kv_blocks": max(1, plan.kv_blocks.expected - 1),
            "sequences": plan.flags.max_num_seqs,
            **({"encoder_tokens": plan.encoder_profile.budget_tokens} if plan.encoder_profile.modality else {}),
        },
    }
    family = family_of(plan.model, plan.flags)
    if goal is not None and goal.image_size is not None and family is not None:
        settings["images"] = {"max_forwarded": goal.images}
        settings["resize"] = {"max_tokens_per_image": family.tokens(goal.image_size).placeholder}
    head = _HEAD.format(
        model=plan.model.name,
        cards=plan.flags.tensor_parallel_size,
        gpu=plan.gpu.name,
        version=plan.version,
        command=command,
    )
    return head + yaml.safe_dump(settings, sort_keys=False)


def _model(plan: Plan) -> dict[str, object]:
    """Its name as the server lists it, and how the server was told to prepare its images, if it was."""
    found: dict[str, object] = {"name": plan.model.name}
    if plan.model.family:
        found["family"] = plan.model.family
    family, vision = family_of(plan.model, plan.flags), plan.model.vision
    if plan.flags.mm_processor_kwargs and isinstance(family, QwenVL) and vision is not None:
        found["processor"] = {
            "patch_size": vision.patch,
            "merge_size": vision.merge,
            "min_pixels": family.min_pixels,
            "max_pixels": family.max_pixels,
        }
    return found
