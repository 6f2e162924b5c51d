"""What the panels of budgets and servers must show at the moments at which all stood still.

What the operator set and what the emulators were started with is known; of what the gateway learns there are bounds.
"""

from collections.abc import Mapping

from tests.deploy.panels.expected import Expectations, Expected, one, series
from tests.deploy.panels.house import (
    BLOCKS_OF_B,
    BUSY_PERCENT,
    CARDS_MIB,
    ENCODER_TOKENS,
    MIB,
    SEQUENCES,
    SMALL_BLOCKS,
)
from tests.deploy.panels.tally import Range, Tally

SERVERS = "abc"
_NONE = Range.exactly(0)
_SEATS = 2048
# A twentieth of what a server has is kept free; one block it keeps for itself. Of `b`, which others fill, a quarter of
# the rest is left to the gateway in any case.
_USABLE = {"a": 1024 - 1, "b": BLOCKS_OF_B - 1, "c": SMALL_BLOCKS}
_BUDGET_BLOCKS = {name: blocks - blocks // 20 for name, blocks in _USABLE.items()}
_CROWDED_BLOCKS = _BUDGET_BLOCKS | {"b": _BUDGET_BLOCKS["b"] // 4}
_LEARNED_PIXELS = Range(1e5, 1e12)

Facts = Mapping[str, Mapping[str, Range]]


def standing(tally: Tally, instance: str) -> Expectations:
    """Of all panels that show how it stands."""
    crowded = tally.moments["crowded"].facts
    upstream = {**_upstream(tally, crowded), **_gpus(instance)}
    return {**_overview(tally, crowded), **_budget(tally, crowded, instance), **upstream}


def _each(values: Mapping[str, float | Range], moment: str) -> list[Expected]:
    """By upstream; 0 for those that are not named."""
    return [Expected(series("upstream", {name: values.get(name, _NONE) for name in SERVERS}), moment)]


def _shares(held: Mapping[str, Range], capacity: Mapping[str, float]) -> dict[str, Range]:
    return {name: held.get(name, _NONE).times(1 / capacity[name]) for name in SERVERS}


def _overview(tally: Tally, crowded: Facts) -> Expectations:
    name, full = "overview", tally.moments["full"].facts
    return {
        (name, "Healthy upstreams"): [Expected(one(2), "gone")],
        (name, "KV blocks held"): _each(_shares(crowded["held_blocks"], _CROWDED_BLOCKS), "crowded"),
        (name, "Requests that wait"): _each(full["queue_depth"], "full"),
        ("estimates", "KV: held here and used there"): [
            *_each(_shares(crowded["held_blocks"], _CROWDED_BLOCKS), "crowded"),
            *_each(crowded["kv_usage"], "crowded"),
        ],
    }


def _budget(tally: Tally, crowded: Facts, instance: str) -> Expectations:
    name, full = "budget", tally.moments["full"].facts
    over = full["held_blocks"]["c"].plus(-_BUDGET_BLOCKS["c"])
    encoder = dict.fromkeys(SERVERS, float(ENCODER_TOKENS))

    def held_and(fact: str, capacity: Mapping[str, float | Range]) -> list[Expected]:
        return [*_each(crowded[fact], "crowded"), *_each(capacity, "crowded")]

    def own(fact: str, moment: str, capacity: float) -> list[Expected]:
        held = tally.moments[moment].facts[fact]["held"]
        return [Expected(series("instance", {instance: value}), moment) for value in (held, Range.exactly(capacity))]

    return {
        (name, "Share held, by resource"): [Expected(_shares_by_resource(crowded), "crowded")],
        (name, "KV blocks beyond the sum"): _each({"c": over}, "full"),
        (name, "KV blocks"): held_and("held_blocks", _CROWDED_BLOCKS),
        (name, "Sequences"): held_and("held_sequences", SEQUENCES),
        (name, "Encoder tokens"): held_and("held_encoder_tokens", encoder),
        (name, "Pixels to preprocess"): held_and("held_pixels", dict.fromkeys(SERVERS, _LEARNED_PIXELS)),
        (name, "Prompt tokens before their first token"): _each(crowded["held_prefill"], "crowded"),
        (name, "Prompt tokens behind images"): _each(crowded["held_image_prefill"], "crowded"),
        (name, "Seats"): own("seats", "full", _SEATS),
        (name, "Bytes of request bodies"): own("body_bytes", "full", 64 * MIB),
        (name, "Bytes for decoding images"): own("decode_bytes", "decoding", 64 * MIB),
        (name, "Requests that wait"): _each(full["queue_depth"], "full"),
        (name, "Tokens that wait"): _each(full["queue_tokens"], "full"),
        (name, "Pause"): _each(tally.moments["paused"].facts["pause"], "paused"),
        (name, "Share of the budget that is let in"): _each(
            {each: _CROWDED_BLOCKS[each] / _BUDGET_BLOCKS[each] for each in SERVERS}, "crowded"
        ),
        (name, "Pressure"): _in_both_lanes(full["pressure"]),
        (name, "Pressure of what was refused"): _in_both_lanes(full["unmet"]),
        (name, "Rungs in force"): [
            Expected(series("rung lane upstream", {("shed", lane, "c"): 1 for lane in ("text", "image")}), "full")
        ],
    }


def _shares_by_resource(crowded: Facts) -> dict[tuple[tuple[str, str], ...], Range]:
    shares = {
        "kv_blocks": _shares(crowded["held_blocks"], _CROWDED_BLOCKS),
        "sequences": _shares(crowded["held_sequences"], SEQUENCES),
        "encoder_tokens": _shares(crowded["held_encoder_tokens"], dict.fromkeys(SERVERS, ENCODER_TOKENS)),
        "preprocess_pixels": {"a": _NONE, "b": _NONE, "c": Range(1e-9, 1.0)},
    }
    values = {(resource, name): share for resource, each in shares.items() for name, share in each.items()}
    return dict(series("resource upstream", values))


def _in_both_lanes(values: Mapping[str, Range]) -> list[Expected]:
    """Texts wait, which are in the way of images too."""
    both = {(lane, name): values.get(name, _NONE) for lane in ("text", "image") for name in SERVERS}
    return [Expected(series("lane upstream", both), "full")]


def _upstream(tally: Tally, crowded: Facts) -> Expectations:
    name = "upstream"
    there = {"a": 1, "b": 1, "c": 0}
    return {
        (name, "Up"): _each(there, "gone"),
        (name, "Healthy"): _each(there, "gone"),
        (name, "Requests in flight"): _each(crowded["in_flight"], "crowded"),
        (name, "KV usage"): _each(crowded["kv_usage"], "crowded"),
        (name, "Requests of others"): _each(crowded["foreign_requests"], "crowded"),
        (name, "KV blocks of others"): _each(crowded["foreign_blocks"], "crowded"),
        (name, "Pause"): _each(tally.moments["paused"].facts["pause"], "paused"),
    }


def _gpus(instance: str) -> Expectations:
    def by_card(values: Mapping[str, float]) -> Expected:
        return Expected(series("instance gpu", {(instance, card): value for card, value in values.items()}))

    used, total = ({card: mib[index] * MIB for card, mib in CARDS_MIB.items()} for index in (0, 1))
    return {
        ("upstream", "GPU memory"): [by_card(used), by_card(total)],
        ("upstream", "GPU busy"): [by_card({card: percent / 100 for card, percent in BUSY_PERCENT.items()})],
    }
