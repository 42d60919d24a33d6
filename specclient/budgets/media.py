"""Upper bounds of calls for images and speech, in tokens, from their parameters.

The counts are upper bounds of what vendors have published, because providers bill images and audio in tokens
of their own: OpenAI, "Image generation", cost and latency (output tokens by quality and size); OpenAI,
"Pricing" (dollars per million tokens and per minute of speech, whose ratio gives tokens per second).
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from specclient import tokens
from specclient.types.usage import Usage, UsageUnit

__all__ = ["MEDIA_BOUNDS", "count_of"]

#: Output tokens of an image of 1024 × 1024 pixels by quality; other sizes in proportion to their area. Other
#: qualities, ``auto`` among them, count as the highest.
_IMAGE_TOKENS: Mapping[str, int] = {"low": 272, "medium": 1056, "high": 4160}
_SQUARE = 1024 * 1024
#: Pixels of an image whose size the provider chooses: the largest of those published with a token count.
_AUTO_PIXELS = 1536 * 1024
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
#: Output tokens of each partial image of a stream, and input tokens of each given image in high fidelity.
_PARTIAL_TOKENS, _GIVEN_TOKENS = 100, 8192
_MARGIN = 1.25

#: Seconds per spoken character at the usual speed; the slowest characters are digits read one by one.
_CHARACTER_S = 0.4
_SLOWEST = 0.25
#: Tokens of a second of audio (published prices give 17 to 21), and of the text that is spoken in it.
_AUDIO_TOKENS_S, _TEXT_TOKENS_S = 25, 10
#: The fewest bytes of a second of compressed speech; WAV files state how many they have.
_BYTES_S = 500
_HEAD_BYTES = 4096
_PCM = frozenset({1, 3, 6, 7})  # integers, floats, A-law, µ-law: constant bytes per second


def count_of(value: Any) -> int | None:
    """Return a number as servers read it, which accept ``5.0`` and ``"5"`` for 5; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float):
        return math.ceil(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _images(params: Mapping[str, Any], model: str) -> Usage | None:
    """Return the most tokens of generated images: images × frames × size × quality."""
    if params.get("svg"):
        return None  # drawn as text of any length
    images = max(count_of(params.get("n")) or 1, 1)
    frames = max(count_of(params.get("frame_count")) or 1, 1)
    size = _SIZE.fullmatch(str(params.get("size")))
    pixels = _AUTO_PIXELS if size is None else int(size[1]) * int(size[2])
    each = _IMAGE_TOKENS.get(str(params.get("quality")), max(_IMAGE_TOKENS.values()))
    drawn = math.ceil(each * max(pixels / _SQUARE, 1) * _MARGIN) * frames
    drawn += _PARTIAL_TOKENS * max(count_of(params.get("partial_images")) or 0, 0)
    given = _GIVEN_TOKENS * sum(_many(params.get(name)) for name in ("image", "images", "mask", "markup"))
    prompt = math.ceil(tokens.count_text(_text(params.get("prompt")), model).tokens * _MARGIN)
    return Usage(
        prompt=prompt + given,
        completion=images * drawn,
        image_prompt=given,
        image_completion=images * drawn,
    )


def _speech(params: Mapping[str, Any], model: str) -> Usage | None:
    """Return the most tokens of spoken text, from its characters."""
    text, instructions = _text(params.get("input")), _text(params.get("instructions"))
    speed = params.get("speed")
    slowness = 1 / min(max(speed, _SLOWEST), 1) if isinstance(speed, int | float) else 1
    spoken = math.ceil(len(text) * _CHARACTER_S * slowness * _AUDIO_TOKENS_S)
    prompt = math.ceil(tokens.count_text(text + instructions, model).tokens * _MARGIN)
    units = (UsageUnit("character", Decimal(len(text))),)
    return Usage(prompt=prompt, completion=spoken, audio_completion=spoken, units=units)


def _transcript(params: Mapping[str, Any], model: str) -> Usage | None:
    """Return the most tokens of a transcribed or translated recording, from its seconds."""
    seconds = _seconds(params.get("file"))
    if seconds is None:
        return None
    heard = math.ceil(seconds * _AUDIO_TOKENS_S)
    prompt = math.ceil(tokens.count_text(_text(params.get("prompt")), model).tokens * _MARGIN)
    return Usage(
        prompt=prompt + heard,
        completion=math.ceil(seconds * _TEXT_TOKENS_S) + 1,
        audio_prompt=heard,
        units=(UsageUnit("audio_second", Decimal(math.ceil(seconds))),),
    )


#: Functions, by operation, that return the most tokens of a call from its parameters and model; None if they
#: cannot be bounded.
MEDIA_BOUNDS: Mapping[str, Callable[[Mapping[str, Any], str], Usage | None]] = {
    "images.generate": _images,
    "images.edit": _images,
    "images.create_variation": _images,
    "audio.speech.create": _speech,
    "audio.transcriptions.create": _transcript,
    "audio.translations.create": _transcript,
}


def _seconds(file: Any) -> float | None:
    """Return the most seconds of a recording; None if its size is unknown."""
    size, head = _size_and_head(file)
    if size is None:
        return None
    return size / max(_wav_bytes_s(head) or _BYTES_S, 1) + 1


def _wav_bytes_s(head: bytes) -> int | None:
    """Return the bytes of a second of an uncompressed WAV file; None for any other file."""
    start = head.find(b"fmt ")
    if not (head.startswith(b"RIFF") and head[8:12] == b"WAVE" and 0 < start <= len(head) - 24):
        return None
    form, _, samples_s, _, block = struct.unpack_from("<HHIIH", head, start + 8)
    return samples_s * block if form in _PCM else None


def _size_and_head(file: Any) -> tuple[int | None, bytes]:
    """Return the size in bytes and the beginning of a file as ``forms.multipart`` takes it."""
    if isinstance(file, tuple) and len(file) > 1:
        file = file[1]
    if isinstance(file, bytes | bytearray):
        return len(file), bytes(file[:_HEAD_BYTES])
    try:
        if isinstance(file, os.PathLike):
            with open(file, "rb") as opened:  # noqa: PTH123 - any path-like object
                return _size_and_head(opened)
        if isinstance(file, io.IOBase) and file.seekable():
            at = file.tell()
            head = file.read(_HEAD_BYTES)
            end = file.seek(0, os.SEEK_END)
            file.seek(at)
            return end - at, head
    except (OSError, ValueError):
        pass
    return None, b""


def _many(value: Any) -> int:
    return len(value) if isinstance(value, list) else int(value is not None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
