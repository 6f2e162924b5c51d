import asyncio
from hashlib import sha256
from math import inf

import pytest

from gateway.access import tenancy_of
from gateway.domain.image import ImageFormat
from gateway.domain.output import ReservationRule
from gateway.domain.pressure import Band, Rung
from gateway.domain.priority import Priority
from gateway.domain.resize import Preset
from gateway.domain.slo import NO_LEVELS, ServiceLevel
from gateway.domain.tenancy import Tenant
from gateway.imaging.pillow import DECODABLE
from gateway.ledger.byte_budget import ByteBudget
from gateway.ledger.host_memory import GIB
from gateway.models.configure import ModelSettingsError
from gateway.policies import (
    ByteBudgets,
    body_limits_of,
    engine_of,
    limits_that_do_not_fit,
    models_of,
    pixel_limits,
    policies_of,
    preprocess_backlog_seconds_of,
    pressure_policy_of,
    rungs_that_do_nothing,
    soonest_level,
    upstreams_of,
)
from gateway.server.body_hold import BodyHold
from gateway.server.door import Arrival
from gateway.settings import MIB
from gateway.settings_sources import load


def settings_of(text=""):
    return load(file_text=text, file_name="g.yaml").settings


def budgets_of(settings, limit_bytes=8 * GIB):
    return ByteBudgets.of(settings.budget, limit_bytes)


def test_budgets_are_shares_of_the_memory_limit_unless_they_are_set():
    assert budgets_of(settings_of()) == ByteBudgets(8 * GIB, 2 * GIB, 2 * GIB, 8 * GIB // 20)
    own = settings_of("budget: {body_bytes: 1000, decode_bytes: 2000}")
    assert budgets_of(own) == ByteBudgets(8 * GIB, 1000, 2000, 8 * GIB // 20)


def test_a_body_takes_at_most_half_of_the_memory_for_bodies():
    roomy, tight = settings_of(), settings_of(f"budget: {{body_bytes: {10 * MIB}}}")
    assert body_limits_of(roomy, budgets_of(roomy)).max_bytes == 32 * MIB
    assert body_limits_of(tight, budgets_of(tight)).max_bytes == 5 * MIB


async def test_coded_bodies_get_their_turn_however_small_the_memory_for_bodies_is():
    """Each holds what has come and asks for all that it may become: none waits for bytes that only waiters hold."""
    settings = settings_of(f"budget: {{body_bytes: {64 * MIB}}}")
    budget = ByteBudget(64 * MIB, purpose="request bodies", call_later=asyncio.get_running_loop().call_later)
    limits = body_limits_of(settings, budgets_of(settings))
    first, second = (BodyHold(budget, Arrival(None, content_encoding=b"gzip"), limits, 0.0) for _ in range(2))
    for hold in (first, second):
        await hold.begin(is_here=False)
        await hold.grow(20_000, is_fast=True)
    await first.grow(300_000, is_fast=True)
    first.release()
    await second.grow(300_000, is_fast=False)
    await second.grow(600_000, is_fast=True)


def test_policies_carry_what_the_operator_wants():
    settings = settings_of(
        "resize: {preset: ocr}\nhistory: {mode: always, keep: 3}\nimages: {max_per_turn: 2, max_forwarded: 9}\n"
        "output_reservation: none\nupstream: {inject_usage: false}"
    )
    policies = policies_of(settings, budgets_of(settings))
    assert (policies.output_reservation, policies.asks_for_usage) == (ReservationRule.NONE, False)
    assert policies.resize.preset == "ocr"
    assert (policies.trim.mode, policies.trim.keep, policies.max_images_per_turn) == ("always", 3, 2)
    assert engine_of(settings, upstreams_of(settings)[0]).image_limit.value == 9
    assert policies_of(settings_of("resize: {preset: 'off'}"), budgets_of(settings)).resize.preset is None


def limits_by_name(settings, limit_bytes):
    return {limit.name: limit for limit in pixel_limits(settings.images, budgets_of(settings, limit_bytes))}


def test_with_much_memory_the_settings_bind():
    limits = limits_by_name(settings_of(), 16 * GIB)
    assert {limit.bound_by for name, limit in limits.items() if name != "jpeg"} == {"images.max_pixels"}
    assert (limits["jpeg"].pixels, limits["jpeg"].bound_by) == (100_000_000, "images.max_jpeg_pixels")
    assert limits["progressive jpeg"].pixels == 50_000_000


def test_with_little_memory_the_decode_budget_binds_the_hungry_formats():
    limits = limits_by_name(settings_of(), GIB)
    assert (limits["webp"].bound_by, limits["webp"].pixels) == ("budget.decode_bytes", int((GIB / 4 - 8 * MIB) / 38.5))
    at_eight = limits_by_name(settings_of(), 8 * GIB)
    assert {limit.bound_by for limit in at_eight.values()} == {"images.max_pixels", "images.max_jpeg_pixels"}


def test_one_limit_for_all_formats_holds_for_jpeg_too():
    limits = limits_by_name(settings_of("images: {max_pixels: 1000, formats: [jpeg]}"), GIB)
    assert {name: (limit.pixels, limit.bound_by) for name, limit in limits.items()} == {
        "jpeg": (1000, "images.max_pixels"),
        "progressive jpeg": (1000, "images.max_pixels"),
    }


@pytest.mark.parametrize(
    "harmless",
    [
        "",
        "images: {max_pixels: 900000000}",
        "images: {max_pixels: 900000000, max_jpeg_pixels: 900000000}",
        "budget: {decode_bytes: 1000000}",
        f"images: {{max_pixels: 6000000}}\nbudget: {{decode_bytes: {256 * MIB}}}",
        f"images: {{max_pixels: 50000000, formats: [png]}}\nbudget: {{decode_bytes: {1600 * MIB}}}",
        f"images: {{max_pixels: 50000000, formats: [png, heic]}}\nbudget: {{decode_bytes: {1600 * MIB}}}",
    ],
)
def test_limits_left_to_the_gateway_give_way_in_silence(harmless):
    assert limits_that_do_not_fit(settings_of(harmless)) == []


def test_two_settings_that_contradict_each_other_are_both_named_with_what_would_fit():
    text = f"images: {{max_pixels: 50000000, formats: [png, webp, tiff]}}\nbudget: {{decode_bytes: {1600 * MIB}}}"
    [sentence] = limits_that_do_not_fit(settings_of(text))
    assert sentence == (
        "images.max_pixels is 50000000, but budget.decode_bytes = 1677721600 can decode at most 43359298 pixels of "
        "webp (too little for: webp). Set images.max_pixels to 43359298 or less, budget.decode_bytes to "
        "1933388608 or more, or leave those formats out of images.formats."
    )
    for remedy in (
        text.replace("50000000", "43359298"),
        text.replace(str(1600 * MIB), "1933388608"),
        text.replace(", webp, tiff", ""),
    ):
        assert limits_that_do_not_fit(settings_of(remedy)) == []


def test_each_setting_has_its_own_sentence():
    text = "images: {max_pixels: 50000000, max_jpeg_pixels: 90000000}\nbudget: {decode_bytes: 1000000}"
    jpeg, others = limits_that_do_not_fit(settings_of(text))
    assert jpeg.startswith("images.max_jpeg_pixels is 90000000, but budget.decode_bytes = 1000000")
    assert "(too little for: avif, bmp, gif, heic, ico, png, tiff, webp, progressive jpeg)" in others


def test_all_models_that_cannot_be_used_are_named_at_once():
    settings = settings_of("models: [{name: a, family: bogus}, {name: b, family: qwen2_vl}, {name: c, folder: /no}]")
    with pytest.raises(ModelSettingsError) as caught:
        models_of(settings)
    first, second = str(caught.value).splitlines()
    assert first.startswith("model 'a': unknown model family 'bogus'")
    assert second.startswith("model 'c': config.json: cannot be read")


def test_a_model_that_is_named_twice_is_a_mistake():
    settings = settings_of("models: [{name: a, family: qwen2_vl}, {name: b}, {name: a, family: qwen3_vl}]")
    with pytest.raises(ModelSettingsError, match=r"^model 'a': is named 2 times; keep one$"):
        models_of(settings)


def test_models_say_how_their_family_was_found():
    settings = settings_of("models: [{name: a, family: qwen2_vl}, {name: Qwen3-VL-8B}, {name: b}]")
    assert [(model.family.name, model.family_source) for model in models_of(settings)] == [
        ("qwen2_vl", "setting"),
        ("qwen3_vl", "name"),
        ("unknown", "assumed"),
    ]


def test_formats_that_cannot_be_decoded_here_have_no_limit(monkeypatch):
    monkeypatch.setattr("gateway.policies.DECODABLE", DECODABLE - {ImageFormat.HEIC})
    settings = settings_of("images: {formats: [heic]}")
    assert pixel_limits(settings.images, budgets_of(settings)) == []
    assert ImageFormat.HEIC in settings.images.formats


def test_tenants_are_found_by_the_hashes_of_their_keys():
    text = f"""
    keys: {{unknown: default}}
    tenants:
      - {{name: gold, key_sha256: [{sha256(b"one").hexdigest()}], weight: 3, most_urgent: critical}}
      - {{name: default, priority: batch}}
    """
    tenancy = tenancy_of(settings_of(text))
    assert tenancy.tenant_of(b"one", 0.0) == Tenant(
        "gold", "gold", 3.0, Priority.DEFAULT, Priority.CRITICAL, is_named=True
    )
    assert tenancy.tenant_of(b"two", 0.0) == Tenant(
        "default", "default", 1.0, Priority.BATCH, Priority.INTERACTIVE, is_named=True
    )


def test_without_tenants_everyone_is_his_own():
    tenancy = tenancy_of(settings_of())
    assert tenancy.tenant_of(b"", 0.0) == Tenant()
    assert tenancy.tenant_of(b"one", 0.0) != tenancy.tenant_of(b"two", 0.0)


def test_tokens_are_counted_here_only_where_the_settings_say_so():
    for text, is_so in (("", False), ("tokens: {answer: upstream}", False), ("tokens: {answer: estimate}", True)):
        settings = settings_of(text)
        assert policies_of(settings, budgets_of(settings)).counts_tokens is is_so


def test_the_ladder_has_the_rungs_that_are_set():
    assert pressure_policy_of(settings_of()) is None
    policy = pressure_policy_of(
        settings_of("pressure: {shrink: {preset: thumbnail}, max_tokens: {tokens: 64}, shed: {priority: default}}")
    )
    assert policy.bands == {Rung.SHRINK: Band(2.0, 0.95), Rung.MAX_TOKENS: Band(2.5, 1.25), Rung.SHED: Band(3.0, 2.0)}
    assert (policy.preset, policy.max_tokens, policy.shed_from) == (Preset.THUMBNAIL, 64, Priority.DEFAULT)
    assert pressure_policy_of(settings_of("pressure: {history: {keep: 5}}")).keep_images == 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "resize: {preset: ocr}\npressure: {shrink: {preset: detail}}",
            "pressure.shrink.preset is detail, but resize.preset brings all images under ocr already.",
        ),
        (
            "history: {mode: always, keep: 2}\npressure: {history: {keep: 2}}",
            "pressure.history.keep is 2, but history.keep is 2 for all already.",
        ),
        (
            "queue: {requests: 0}\npressure: {shrink: on, shed: on}",
            "pressure.shed.enter is 3, but with queue.requests = 0 it ends at 1: none wait.",
        ),
    ],
)
def test_a_rung_that_would_do_nothing_is_a_mistake(text, sentence):
    assert rungs_that_do_nothing(settings_of(text)) == [sentence]


@pytest.mark.parametrize(
    "text",
    [
        "resize: {preset: ocr}\npressure: {shrink: {preset: thumbnail}}",
        "history: {mode: always}\npressure: {history: on}",
        "history: {keep: 1}\npressure: {history: on}",
        "history: {mode: off}\npressure: {history: on, shrink: on, refuse: on}",
        "queue: {requests: 0}",
    ],
)
def test_rungs_that_do_more_than_the_usual_rules_are_none(text):
    assert rungs_that_do_nothing(settings_of(text)) == []


class TestLevels:
    def test_everyone_has_those_for_all_and_a_tenant_its_own(self):
        settings = settings_of(
            "slo: {first_token_seconds: 4, classes: {batch: {first_token_seconds: 40}}}\n"
            f"tenants: [{{name: lab, key_sha256: [{sha256(b'k').hexdigest()}], slo: {{first_token_seconds: 2}}}}]\n"
            "keys: {unknown: default}"
        )
        tenancy = tenancy_of(settings)
        stranger, lab = tenancy.tenant_of(b"someone", 0.0), tenancy.tenant_of(b"k", 0.0)
        assert stranger.levels[Priority.DEFAULT].first_token_seconds == 4.0
        assert stranger.levels[Priority.BATCH].first_token_seconds == 40.0
        assert {level.first_token_seconds for level in lab.levels} == {2.0}
        assert soonest_level(settings) == (2.0, inf)

    @pytest.mark.parametrize(
        ("tenant", "seconds"),
        [("slo: {first_token_seconds: 8}", 8.0), ("most_urgent: default", 4.0), ("most_urgent: interactive", 2.0)],
    )
    def test_a_level_that_no_request_can_have_is_not_the_soonest(self, tenant, seconds):
        classes = "{critical: {first_token_seconds: 1}, interactive: {first_token_seconds: 2}}"
        settings = settings_of(
            f"slo: {{first_token_seconds: 4, classes: {classes}}}\ntenants: [{{name: default, {tenant}}}]"
        )
        assert soonest_level(settings).first_token_seconds == seconds

    def test_without_any_nothing_is_due(self):
        assert soonest_level(settings_of()) == ServiceLevel()
        assert tenancy_of(settings_of()).tenant_of(b"", 0.0).levels == NO_LEVELS

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("", 2.0), ("slo: {first_token_seconds: 4}", 1.0), ("slo: {first_token_seconds: 60}", 2.0)],
    )
    def test_images_are_on_their_way_for_a_quarter_of_the_time_to_the_first_token(self, text, seconds):
        assert preprocess_backlog_seconds_of(settings_of(text)) == seconds
