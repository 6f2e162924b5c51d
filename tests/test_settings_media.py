"""Videos and audio in the settings: off, and never without a bound."""

from gateway.domain.media import NOTHING, MediaKind, MediaPolicy
from gateway.policies import ByteBudgets, policies_of
from gateway.settings_sources import load
from tests.support.settings_mistakes import mistakes


def policies(text=""):
    settings = load(file_text=text, file_name="g.yaml").settings
    return policies_of(settings, ByteBudgets.of(settings.budget, 1 << 33)).media


def test_none_by_default():
    assert policies() == NOTHING


def test_what_is_set_is_what_decides():
    media = policies(
        "videos: {per_request: 2, max_frames: 64, tokens: 9000, allow_hosts: [Videos.Example.com]}\n"
        "audios: {per_request: 1, tokens: 750, allow_hosts: [a, b]}"
    )
    assert media[MediaKind.VIDEO] == MediaPolicy(2, 64, 9000, frozenset({"videos.example.com"}))
    assert media[MediaKind.AUDIO] == MediaPolicy(1, None, 750, frozenset({"a", "b"}))


def test_audio_needs_the_operators_bound():
    (line,) = mistakes(file_text="audios: {per_request: 1}", file_name="g.yaml")
    assert "per_request lets audio in, but tokens does not say what one costs at most" in line
