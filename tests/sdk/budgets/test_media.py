"""Upper bounds of images and speech: at least what providers report for the same request."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pytest

from specclient.budgets.media import MEDIA_BOUNDS, count_of
from specclient.types.usage import Usage

#: Output tokens of an image by quality and size (OpenAI, "Image generation", cost and latency).
PUBLISHED = {
    ("low", "1024x1024"): 272,
    ("low", "1024x1536"): 408,
    ("low", "1536x1024"): 400,
    ("medium", "1024x1024"): 1056,
    ("medium", "1024x1536"): 1584,
    ("medium", "1536x1024"): 1568,
    ("high", "1024x1024"): 4160,
    ("high", "1024x1536"): 6240,
    ("high", "1536x1024"): 6208,
}


def bound(operation: str, **params: Any) -> Usage:
    usage = MEDIA_BOUNDS[operation](params, "m")
    assert usage is not None
    return usage


def image_tokens(**params: Any) -> int:
    return bound("images.generate", prompt="a fox", **params).completion or 0


@pytest.mark.parametrize(("quality", "size"), PUBLISHED)
def test_an_image_takes_at_least_the_published_tokens(quality: str, size: str) -> None:
    least = PUBLISHED[quality, size]
    assert least <= image_tokens(quality=quality, size=size) <= 1.3 * least


def test_what_the_provider_chooses_counts_as_the_most() -> None:
    most = image_tokens(quality="high", size="1024x1536")
    for given in ({}, {"size": "auto"}, {"quality": "auto"}, {"quality": "best", "size": "large"}):
        assert image_tokens(**given) >= most
    assert image_tokens(quality="low", size="64x64") >= PUBLISHED["low", "1024x1024"]


def test_images_are_multiplied_by_number_frames_and_size() -> None:
    one = image_tokens(quality="low", size="1024x1024")
    assert image_tokens(quality="low", size="1024x1024", n=10) == 10 * one
    assert image_tokens(quality="low", size="1024x1024", n="10") == 10 * one
    assert image_tokens(quality="low", size="1024x1024", frame_count=8) == 8 * one
    assert image_tokens(quality="low", size="4096x4096") == 16 * one
    assert image_tokens(quality="low", size="1024x1024", partial_images=3, n=2) == 2 * (one + 300)
    assert MEDIA_BOUNDS["images.generate"]({"prompt": "x", "svg": True}, "m") is None


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (5, 5),
        (10**400, 10**400),
        (4.2, 5),
        ("7", 7),
        ("7.5", 8),
        ("-3", -3),
        *((each, None) for each in (None, True, "", "many", "1e999", float("inf"), float("nan"), [5], {})),
    ],
)
def test_numbers_are_read_as_lenient_servers_read_them(value: Any, count: int | None) -> None:
    assert count_of(value) == count


def test_given_images_count() -> None:
    plain = bound("images.generate", prompt="x").prompt or 0
    edited = bound("images.edit", prompt="x", image=[b"1", b"2"], mask=b"3").prompt or 0
    assert edited - plain >= 3 * 6240


def test_speech_is_bounded_by_its_characters_and_speed() -> None:
    text = "Nine hundred and ninety-nine thousand nine hundred. " * 10
    spoken = bound("audio.speech.create", input=text).completion or 0
    assert spoken >= len(text) / 12 * 21  # twelve characters a second is slow, 21 tokens a second the price
    slow = bound("audio.speech.create", input=text, speed=0.25).completion or 0
    assert slow == 4 * spoken
    assert (bound("audio.speech.create", input=text, speed=4).completion or 0) == spoken


def wav(seconds: int, *, samples_s: int = 16_000, form: int = 1) -> bytes:
    size = seconds * samples_s * 2
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, form, 1, samples_s,
                       10**9, 2, 16)  # fmt: skip
    return head + struct.pack("<4sI", b"data", size) + bytes(size)


def test_a_recording_is_bounded_by_its_seconds(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    file.write_bytes(wav(10))
    for given in (wav(10), ("a.wav", wav(10), "audio/wav"), io.BytesIO(wav(10)), file):
        heard = bound("audio.transcriptions.create", file=given).audio_prompt or 0
        assert 10 * 17 <= heard <= 12 * 25
    compressed = bound("audio.transcriptions.create", file=("a.ogg", bytes(60_000))).audio_prompt or 0
    assert compressed >= 60_000 / 750 * 17  # the lowest bit rate that Opus recommends for speech
    forged = bound("audio.transcriptions.create", file=wav(10, form=2)).audio_prompt or 0
    assert forged > 10 * 25
    assert MEDIA_BOUNDS["audio.transcriptions.create"]({"file": object()}, "m") is None
