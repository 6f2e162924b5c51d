"""Pictures for tests: any size, mode and format, cheap to make, each seed another content."""

import base64
import io

import numpy as np
from PIL import Image

ORIENTATION_TAG = 0x0112


def picture(width: int, height: int, *, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Slanted waves, so that neither compression nor resizing has nothing to do."""
    rows = np.arange(height, dtype=np.float32)[:, None]
    columns = np.arange(width, dtype=np.float32)[None, :]
    waves = [np.sin(columns / (9 + seed % 7) + rows / (11 + channel) + seed) for channel in range(3)]
    image = Image.fromarray((np.stack(waves, axis=2) * 127 + 128).astype(np.uint8), "RGB")
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    if mode in {"RGBA", "LA"}:
        image.putalpha(Image.fromarray((waves[0] * 127 + 128).astype(np.uint8), "L"))
    return image if mode == "RGBA" else image.convert(mode)


def encoded(image: Image.Image, file_format: str = "PNG", *, orientation: int = 1, **options: object) -> bytes:
    """The image as a file; an `orientation` other than 1 is written as EXIF."""
    if orientation != 1:
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = orientation
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def data_url(file: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(file).decode()}"


def frames_url(frames: int, width: int, height: int) -> str:
    """A video as a list of JPEG files, each another picture."""
    files = (encoded(picture(width, height, seed=seed), "JPEG") for seed in range(frames))
    return "data:video/jpeg;base64," + ",".join(base64.b64encode(file).decode() for file in files)
