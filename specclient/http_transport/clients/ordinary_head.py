"""Heads of ordinary responses, parsed without aiohttp's parser; see :mod:`.ordinary_response`.

Whether a response is ordinary is decided by its head alone. Imported only when aiohttp does the I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict

__all__ = ["LINE_END", "MOST_DIGITS", "OrdinaryHead", "ordinary_head"]

LINE_END = b"\r\n"
MOST_DIGITS = 15
"""Digits of a length; more are left to aiohttp."""

_VERSION = b"HTTP/1.1 "
#: Longest head in bytes; what is longer is left to aiohttp.
_MOST_HEAD = 16 * 2**10
#: Bytes that a head may have (RFC 9110, section 5.5).
_IN_HEAD = bytes([*b"\t\r\n", *range(0x20, 0x7F), *range(0x80, 0x100)])
_FRAMING = ("content-encoding", "upgrade", "trailer")


class OrdinaryHead:
    """The head of an ordinary response.

    Args:
        status: the first line.
        lines: the other lines.

    Attributes:
        code, reason: of its status line.
        fields: its headers by lower-case name; the last value of a repeated one.
        length: bytes of its body; None for a chunked one.
        end: bytes of the head itself.
    """

    __slots__ = ("_lines", "code", "end", "fields", "length", "reason")

    def __init__(
        self, status: str, lines: list[str], *, fields: dict[str, str], length: int | None, end: int
    ) -> None:
        self.code = int(status[9:12])
        self.reason = status[13:]
        self.fields = fields
        self.length = length
        self.end = end
        self._lines = lines

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Names and values as received."""
        pairs = [line.partition(":")[::2] for line in self._lines]
        return tuple((name.encode("latin-1"), text.strip(" \t").encode("latin-1")) for name, text in pairs)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name, in any case."""
        return CIMultiDict(
            (name.decode("latin-1"), text.decode("utf-8", "surrogateescape"))
            for name, text in self.raw_headers
        )


def ordinary_head(data: bytes) -> OrdinaryHead | None:
    """Return the head at the beginning of a response; None if the response is not ordinary."""
    end = data.find(b"\r\n\r\n", 0, _MOST_HEAD)
    if end < 0 or not data.startswith(_VERSION):
        return None
    head = data[:end]
    breaks = head.count(LINE_END)
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or head.translate(None, _IN_HEAD):
        return None
    status, *lines = head.decode("latin-1").split("\r\n")
    code = status[9:12]
    if not (code.isascii() and code.isdigit()) or status[12:13] not in ("", " "):
        return None
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon:
            return None
        name = name.lower()
        if name in fields and name != "set-cookie":
            return None
        fields[name] = text.strip(" \t")
    if code < "200" or code in ("204", "304") or not _has_plain_names(fields):
        return None
    framed, length = _framing(fields)
    return OrdinaryHead(status, lines, fields=fields, length=length, end=end + 4) if framed else None


def _has_plain_names(fields: Mapping[str, str]) -> bool:
    """Return whether all names are letters, digits, ``-`` and ``_``; other characters are rare."""
    names = "".join(fields).replace("-", "").replace("_", "")
    return "" not in fields and names.isascii() and names.isalnum()


def _framing(fields: Mapping[str, str]) -> tuple[bool, int | None]:
    """Return whether the framing of a body is ordinary, and its length; None for a chunked one."""
    if any(name in fields for name in _FRAMING):
        return False, None
    if fields.get("connection", "keep-alive").lower() != "keep-alive":
        return False, None
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if coding is not None:
        return length is None and coding.lower() == "chunked", None
    if length is None or not (length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS):
        return False, None
    return True, int(length)
