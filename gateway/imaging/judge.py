"""What decoding one picture leads to. Runs in a worker process: plain values in, plain values out."""

import pybase64

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo
from gateway.imaging.decode import verify
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.render import render
from gateway.imaging.verdicts import Damage, Prepared, Verdict
from gateway.wire.encoded_file import EncodedFile


def needs_decode(info: ImageInfo, target: Size | None) -> bool:
    """Whether the plan or the header already say that this image is encoded anew."""
    return bool(info.why) or target not in {None, info.size}


def judge(file: EncodedFile, info: ImageInfo, target: Size | None) -> Verdict:
    """Decodes one image: base64 to pixels, and to base64 again where it changes."""
    try:
        if not needs_decode(info, target):
            verify(file.decode(), info)
            return Verdict()
        rendered = render(file.decode(), info, target or info.size)
    except GatewayError as error:
        return Verdict(damage=Damage.of(error))
    encoded = pybase64.b64encode(rendered.file)
    return Verdict(prepared=Prepared(encoded, rendered.media_type, len(rendered.file), rendered.why))


def inspect(file: EncodedFile, limits: ImageLimits) -> ImageInfo | Damage:
    """`probe` for formats whose headers decoders of the system read."""
    try:
        return probe(file, limits, "")
    except GatewayError as error:
        return Damage.of(error)
