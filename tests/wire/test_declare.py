from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageAction, ImageFormat, ImageInfo, ImagePlan, Why
from gateway.domain.outcome import Fate
from gateway.wire.declare import declare_images, planned_action, shadow_headers, success_headers


def plan(ordinal, size=(4000, 3000), target=None, why=()):
    info = ImageInfo(ImageFormat.JPEG, Size(*size), Size(*size), 1, 1, 1000, is_lossy=True, why=frozenset(why))
    return ImagePlan(ordinal, info, Size(*(target or size)), tokens=1, tokens_before=2)


def test_what_was_done_to_each_image():
    plans = [plan(3, target=(1148, 868)), plan(2, why=[Why.ALPHA]), plan(1), plan(4, size=(10, 20))]

    assert declare_images(plans, trimmed=[0], encoded_anew=[4, 3]) == (
        b"0;trimmed, 2;normalised;4000x3000, 3;resized;4000x3000;1148x868;scale=3.484321x3.456221, 4;normalised;10x20"
    )


def test_the_scale_leads_back_to_the_picture_that_was_sent():
    header = declare_images([plan(0, target=(1000, 500))], ()).decode()
    x, y = (float(factor) for factor in header.partition("scale=")[2].split("x"))
    assert (x * 1000, y * 500) == (4000, 3000)


def test_untouched_images_are_not_named():
    assert declare_images([plan(0), plan(1)], ()) == b""
    assert b"x-gateway-images" not in dict(success_headers(prompt_tokens=1, visual_tokens=0, queue_seconds=0))


def test_a_long_list_is_cut_and_says_so():
    header = declare_images([plan(i, target=(1148, 868)) for i in range(100)], ())
    entries, _, more = header.decode().rpartition(";more=")
    kept = len(entries.split(", "))
    assert len(entries) <= 1024
    assert kept + int(more) == 100
    assert kept > 15


def test_headers():
    headers = success_headers(prompt_tokens=1500, visual_tokens=1369, queue_seconds=0.2504, trimmed=[0])
    assert headers == [
        (b"x-gateway-prompt-tokens", b"1500"),
        (b"x-gateway-visual-tokens", b"1369"),
        (b"x-gateway-queue-ms", b"250"),
        (b"x-gateway-images", b"0;trimmed"),
    ]


def test_what_would_have_been():
    refusal = GatewayError(Code.RATE_LIMIT_EXCEEDED, "The queue is full.")
    assert shadow_headers(Fate.ADMITTED, None, 0.0) == [(b"x-gateway-shadow", b"admitted")]
    assert shadow_headers(Fate.QUEUED, None, 0.812) == [(b"x-gateway-shadow", b"queued;wait-ms=812")]
    refused = shadow_headers(Fate.REFUSED, refusal, 3.0, overload_status=529)
    assert refused == [(b"x-gateway-shadow", b"refused;reason=queue_full;status=529")]
    changed = shadow_headers(Fate.ADMITTED, None, 0.0, trimmed=[0], rungs="shrink")
    assert changed[1:] == [(b"x-gateway-shadow-images", b"0;trimmed"), (b"x-gateway-shadow-pressure", b"shrink")]


def test_what_would_be_done_to_an_image():
    plans = [plan(0, target=(8, 8)), plan(1, why=[Why.ALPHA]), plan(2)]
    assert [planned_action(each) for each in plans] == [ImageAction.RESIZED, ImageAction.NORMALISED, ImageAction.KEPT]
