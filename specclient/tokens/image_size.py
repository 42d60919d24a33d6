"""Width and height of PNG, JPEG, GIF and WebP files, read from their first bytes.

PNG: RFC 2083, 4.1.1 (IHDR). GIF: GIF89a, 18. JPEG: ITU-T T.81, B.2.2 (frame header). WebP: the container
specification, "Simple File Format" and "Extended File Format", and RFC 6386, 9.1.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["size_in", "size_of"]

ImageSize = tuple[int, int]

#: Number of characters to read: first attempt, and maximum. In a JPEG, metadata precedes the size.
_FIRST_LENGTH, _MAX_LENGTH = 1_000, 1_000_000
_DATA_URL = re.compile(r"data:[^,;]*(?:;[^,;]*)*;base64,", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")

#: Markers of JPEG frame headers: SOF0 to SOF15. The markers DHT, JPG and DAC in that range are excluded.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})


def size_in(text: str) -> ImageSize | None:
    """Return the width and height, in pixels, of an image in a data URL or in plain base64.

    None if the text is not an image of a known format, or is too short to contain the size.
    """
    found = _DATA_URL.match(text)
    if found is None and ":" in text[:64]:
        return None  # a URL of another scheme
    begin = found.end() if found else 0
    for length in (_FIRST_LENGTH, _MAX_LENGTH):
        body = _BLANKS.sub("", text[begin : begin + length])
        with suppress(binascii.Error, ValueError):
            size = size_of(base64.b64decode(body[: len(body) // 4 * 4]))
            if size is not None or len(text) <= begin + length:
                return size
    return None


def size_of(data: bytes) -> ImageSize | None:
    """Return the width and height of an image file, in pixels; None if they cannot be read."""
    for magic, read in _READERS.items():
        if data.startswith(magic):
            with suppress(struct.error, IndexError):
                size = read(data)
                return size if size is not None and min(size) > 0 else None
    return None


def _png(data: bytes) -> ImageSize | None:
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height) if data[12:16] == b"IHDR" else None


def _gif(data: bytes) -> ImageSize | None:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> ImageSize | None:
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _webp(data: bytes) -> ImageSize | None:
    if data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return (width, height) if len(data) >= 30 else None
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


_READERS: Mapping[bytes, Callable[[bytes], ImageSize | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"\xff\xd8\xff": _jpeg,
    b"RIFF": _webp,
}
