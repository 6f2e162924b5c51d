"""Small colour profiles (ICC.1:2001), made here, and what their numbers mean, reckoned without a colour library."""

import struct

import numpy as np

# Display P3's primaries, brought to D50 as profiles have them (CSS Color 4, appendix of sample code).
P3_TO_D50 = np.array([[0.515102, 0.291965, 0.157153], [0.241182, 0.692236, 0.066582], [-0.001050, 0.041882, 0.784378]])
SRGB_TO_D50 = np.array([[0.436066, 0.385147, 0.143066], [0.222488, 0.716873, 0.060608], [0.013916, 0.097076, 0.714096]])
_GAMMA = 2.2


def _fixed(value):
    return struct.pack(">i", round(value * 65536))


def _xyz(x, y, z):
    return b"XYZ \0\0\0\0" + _fixed(x) + _fixed(y) + _fixed(z)


def _curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"


def _description(name):
    text = name.encode() + b"\0"
    return b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78)


def _profile(space, name, tags):
    tags = {b"desc": _description(name), b"cprt": b"text\0\0\0\0none\0\0\0\0", b"wtpt": _xyz(0.9642, 1, 0.8249)} | tags
    table, data = b"", b""
    start = 128 + 4 + 12 * len(tags)
    for tag, content in tags.items():
        padded = content + bytes(-len(content) % 4)
        table += struct.pack(">4sII", tag, start + len(data), len(content))
        data += padded
    body = struct.pack(">I", len(tags)) + table + data
    head = struct.pack(">I4sI4s4s4s", 128 + len(body), b"\0\0\0\0", 0x02100000, b"mntr", space, b"XYZ ")
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28) + _fixed(0.9642) + _fixed(1) + _fixed(0.8249)
    return head.ljust(128, b"\0") + body


def display_p3():
    """RGB with wider primaries than sRGB and a gamma of 2.2."""
    names = (b"rXYZ", b"gXYZ", b"bXYZ")
    colorants = {name: _xyz(*column) for name, column in zip(names, P3_TO_D50.T, strict=True)}
    curves = {name: _curve(_GAMMA) for name in (b"rTRC", b"gTRC", b"bTRC")}
    return _profile(b"RGB ", "wide", colorants | curves)


def linear_grey():
    """Grey whose numbers are light itself."""
    return _profile(b"GRAY", "linear", {b"kTRC": _curve(1.0)})


def _encode_srgb(linear):
    linear = np.clip(linear, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055) * 255


def p3_as_srgb(colour):
    """Eight-bit sRGB of eight-bit numbers under `display_p3`."""
    linear = (np.array(colour) / 255) ** _GAMMA
    return _encode_srgb(np.linalg.inv(SRGB_TO_D50) @ P3_TO_D50 @ linear)


def light_as_srgb(value):
    return float(_encode_srgb(np.array(value / 255)))
