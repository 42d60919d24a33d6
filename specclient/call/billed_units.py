"""The units besides tokens that a request is billed for, where its answer reports no usage.

Defaults of parameters are those of OpenAI's API reference ("Create image", "Create video").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from specclient.types.request import Request
from specclient.types.usage import Usage, UsageUnit

__all__ = ["requested_usage"]

_MOST = 10**6
_LONGEST = 32


def _speech(params: Mapping[str, Any]) -> tuple[str, object]:
    text = params.get("input")
    return "character", len(text) if isinstance(text, str) else None


def _images(params: Mapping[str, Any]) -> tuple[str, object]:
    quality = "hd" if params.get("quality") == "hd" else "standard"
    return f"image {quality} {_word(params.get('size'), '1024x1024')}", params.get("n", 1)


def _video(params: Mapping[str, Any]) -> tuple[str, object]:
    return f"video_second {_word(params.get('size'), '720x1280')}", params.get("seconds", 4)


_UNITS: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, object]]]] = MappingProxyType(
    {
        "audio.speech.create": _speech,
        "images.generate": _images,
        "images.edit": _images,
        "images.create_variation": _images,
        "videos.create": _video,
    }
)


def requested_usage(request: Request) -> Usage:
    """Return the units of a request; a usage without any if it has none, or they are no valid counts.

    The seconds of a video are an estimate, as the video is made after the answer.
    """
    units_of = _UNITS.get(request.operation)
    if units_of is None:
        return Usage()
    kind, amount = units_of({**request.params, **request.options.body})
    if isinstance(amount, str) and amount.isascii() and amount.isdigit():
        amount = int(amount[: len(str(_MOST))])
    if type(amount) is not int or not 0 <= amount <= _MOST:
        return Usage()
    return Usage(units=(UsageUnit(kind, Decimal(amount)),), estimated=request.operation == "videos.create")


def _word(value: object, usual: str) -> str:
    return value[:_LONGEST] if isinstance(value, str) and value else usual
