"""Given this body, these images at these paths; given this plan, this body: the same for every route with images."""

import itertools
import json

import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo
from gateway.imaging.workers import Prepared
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.rewriting import ImageSource, rewrite, slim_body
from gateway.wire.data_url import DataUrl, read_data_url
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.routes import Route
from tests.wire.dialects.records import ADDRESS, PIXELS, RECORDS, URL

NEW = "AAAAAAAA"
MARKER = "[image removed]"
SIZE = Size(8, 8)

CASES = [
    pytest.param(record, place, image, id=f"{record.name}-{place}-{image.name}")
    for record in RECORDS
    for place in record.places
    for image in record.images
]
PLACES = [pytest.param(record, place, id=f"{record.name}-{place}") for record in RECORDS for place in record.places]


def exchange_for(record, value):
    exchange = Exchange("id", "POST", "/", b"", (), 0.0, route=Route(record.kind, "/"))
    exchange.body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return exchange, DIALECTS[record.kind].parse(exchange.body)


def source_of(exchange, ref, *, is_forwarded=False):
    if ref.is_remote and not is_forwarded:
        url = DataUrl("", None, None, EncodedFile(PIXELS.encode()), needs_respelling=True)
    else:
        url = None if ref.is_remote else read_data_url(exchange.body, ref)
    return ImageSource(
        ref, url, ImageInfo("png", SIZE, SIZE, 1, 1, 8, is_lossy=False), is_forwarded=is_forwarded and ref.is_remote
    )


def sent(exchange, request, *, new=None, trimmed=(), is_forwarded=False):
    """The body that goes on, with the images in `new` encoded anew as WebP."""
    kept = [ref for ref in request.images if ref.ordinal not in trimmed]
    sources = [source_of(exchange, ref, is_forwarded=is_forwarded) for ref in kept]
    prepared = {
        ordinal: Prepared(base64.encode(), "image/webp", 6, frozenset()) for ordinal, base64 in (new or {}).items()
    }
    return b"".join(rewrite(exchange, request, sources, prepared, trimmed, MARKER))


@pytest.mark.parametrize(("record", "place", "image"), CASES)
class TestOneImage:
    def test_is_found_where_it_stands(self, record, place, image):
        exchange, request = exchange_for(record, record.places[place]([record.text("a"), image.part]))
        [ref] = request.images
        assert ref.param == f"{place}[1]{image.key}"
        assert ref.is_remote is image.is_remote
        string = json.loads(exchange.body[ref.url.start : ref.url.end])
        assert string in {URL, PIXELS, ADDRESS}
        assert sum(len(message.images) for message in request.messages) == 1

    def test_is_encoded_anew(self, record, place, image):
        exchange, request = exchange_for(record, record.places[place]([image.part, record.text("a")]))
        expected = record.places[place]([image.edited("image/webp", NEW), record.text("a")])
        assert json.loads(sent(exchange, request, new={0: NEW})) == expected

    def test_without_a_plan_only_what_vllm_would_misread_changes(self, record, place, image):
        """Of images by address those that were fetched; the others go on as they came."""
        exchange, request = exchange_for(record, record.places[place]([image.part]))
        as_it_came = sent(exchange, request, is_forwarded=True)
        if image.with_uuid is not None:
            assert json.loads(as_it_came) == record.places[place]([image.with_uuid()])
        elif image.edited("image/png", PIXELS) == image.part or image.is_remote:
            assert as_it_came == exchange.body
        else:
            assert json.loads(as_it_came) == record.places[place]([image.edited("image/png", PIXELS)])

    def test_an_edited_body_needs_no_edit(self, record, place, image):
        exchange, request = exchange_for(record, record.places[place]([image.part]))
        once = sent(exchange, request)
        again = exchange_for(record, once)
        assert sent(*again) == once
        assert json.loads(once) == record.places[place]([image.edited("image/png", PIXELS)])

    def test_is_left_out(self, record, place, image):
        if record.marker is None:
            pytest.skip("nothing is history on this route")
        exchange, request = exchange_for(record, record.places[place]([record.text("a"), image.part]))
        once = sent(exchange, request, trimmed=(0,))
        assert json.loads(once) == record.places[place]([record.text("a"), record.marker(MARKER)])
        assert sent(*exchange_for(record, once)) == once

    def test_is_no_text_of_the_prompt(self, record, place, image):
        exchange, request = exchange_for(record, record.places[place]([image.part]))
        slim = slim_body(exchange, request, (), MARKER)
        assert not any(string.encode() in slim for string in (URL, PIXELS, ADDRESS))


@pytest.mark.parametrize(("record", "place"), PLACES)
class TestSeveral:
    def test_each_is_edited_by_itself_and_in_order(self, record, place):
        """All ways to write one beside each other, under every choice of what becomes of each."""
        images = [image for image in record.images if not image.is_remote]
        body = record.places[place]([image.part for image in images])
        for fates in itertools.product(("kept", "new", "gone"), repeat=len(images)):
            if "gone" in fates and record.marker is None:
                continue
            exchange, request = exchange_for(record, body)
            new = {ordinal: NEW for ordinal, fate in enumerate(fates) if fate == "new"}
            gone = tuple(ordinal for ordinal, fate in enumerate(fates) if fate == "gone")
            expected = [_become(image, fate, record) for image, fate in zip(images, fates, strict=True)]
            assert json.loads(sent(exchange, request, new=new, trimmed=gone)) == record.places[place](expected)

    def test_a_body_without_images_goes_on_byte_for_byte(self, record, place):
        text = json.dumps(record.places[place]([record.text("ä\n")]), indent=1).encode()
        exchange, request = exchange_for(record, text)
        assert (request.images, sent(exchange, request)) == ((), text)

    def test_how_a_body_is_spelled_makes_no_difference(self, record, place):
        """Escaped slashes, a key that is escaped and blanks between: what is not edited stays as it was."""
        image = record.images[0]
        plain = (
            json.dumps(record.places[place]([image.part]), indent=2)
            .replace("/", "\\/")
            .replace('"type"', '"t\\u0079pe"')
        )
        exchange, request = exchange_for(record, plain.encode())
        assert request.images[0].param == f"{place}[0]{image.key}"
        assert json.loads(sent(exchange, request, new={0: NEW})) == record.places[place](
            [image.edited("image/webp", NEW)]
        )

    def test_of_a_part_that_stands_twice_the_last_counts(self, record, place):
        image = record.images[0]
        body = json.dumps(record.places[place]([image.part]))
        key = place.partition("[")[0].partition(".")[0]
        twice = body[:-1] + f', "{key}": ' + json.dumps(json.loads(body)[key]) + "}"
        exchange, request = exchange_for(record, twice.encode())
        [ref] = request.images
        assert ref.url.start > len(body)
        assert sent(exchange, request, new={0: NEW}).startswith(body[:-1].encode())


def _become(image, fate, record):
    if fate == "gone":
        return record.marker(MARKER)
    return image.edited("image/webp", NEW) if fate == "new" else image.edited("image/png", PIXELS)


HIDING_COST = {
    "mm_processor_kwargs": {"a": 1},
    "media_io_kwargs": {"image": {"a": 1}},
    "chat_template": "x",
    "kv_transfer_params": {"a": 1},
    "use_beam_search": True,
}


@pytest.mark.parametrize("record", RECORDS, ids=[record.name for record in RECORDS])
def test_fields_with_rules_are_noted_on_every_route(record):
    body = next(iter(record.places.values()))([record.text("Hm?")])
    _, request = exchange_for(record, body | HIDING_COST | {"cache_salt": "mine"})
    assert {use.name for use in request.fields} == HIDING_COST.keys()
    assert request.salt.text == "mine"
