"""Image tokens: sizes read from file headers, and counts by the vendors' published rules."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.tokens import TokenCount, count_messages
from specclient.tokens.image_size import size_in, size_of
from specclient.tokens.images import count_image


def png(width: int, height: int) -> bytes:
    head = struct.pack(">II5B", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + chunk


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def jpeg(width: int, height: int, beside: int = 20) -> bytes:
    """Return a camera's JPEG: an APP1 segment comes first and contains bytes like a frame header."""
    noise = (b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01" * (beside // 9 + 1))[:beside]
    app = b"\xff\xe1" + struct.pack(">H", len(noise) + 2) + noise
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    table = b"\xff\xc4\x00\x0b" + b"\x00\x09" * 4 + b"\x00"  # its marker is in the range of frame markers
    return b"\xff\xd8" + app + b"\xff\xff\xdb\x00\x04\x00\x00" + table + frame


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    edges = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\0\0\0\0" + edges)


FORMS = [png, gif, jpeg, lossy, lossless, extended]


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("form", FORMS)
@given(width=st.integers(1, 8000), height=st.integers(1, 8000))
def test_sizes_are_read_from_headers(form, width, height):
    data = form(width, height)
    assert size_of(data) == size_of(data + b"\xff" * 1000) == (width, height)
    assert size_in(url(data + b"\0" * 5000)) == (width, height)


def test_a_size_is_found_after_a_large_metadata_segment():
    assert size_in(url(jpeg(640, 480, beside=60_000), "jpeg")) == (640, 480)


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_header_gives_no_size(form):
    data = form(640, 480)
    for cut in range(len(data)):
        assert size_of(data[:cut]) in (None, (640, 480))
    assert size_of(data[:20]) is None or form is gif


@given(
    st.binary()
    | st.sampled_from(FORMS).flatmap(lambda form: st.binary().map(lambda end: form(9, 9)[:12] + end))
)
def test_no_bytes_raise(data):
    assert size_of(data) is None or min(size_of(data)) > 0
    size_in(url(data))


@pytest.mark.parametrize(
    "text", ["", "https://host/cat.png", "data:image/png;base64,", "data:,", "file-123", "%%%"]
)
def test_text_without_an_image_gives_no_size(text):
    assert size_in(text) is None


def test_base64_may_have_line_breaks_and_no_data_url():
    whole = base64.encodebytes(png(30, 40) + b"\0" * 3000).decode()
    assert size_in(whole) == (30, 40)
    assert size_in(f"data:image/png;charset=x;base64,{whole}") == (30, 40)


@pytest.mark.parametrize(
    ("model", "size", "detail", "tokens"),
    [
        # The examples of OpenAI's guide.
        ("gpt-4o", (1024, 1024), "high", 765),
        ("gpt-4o", (2048, 4096), "high", 1105),
        ("gpt-4o", (4096, 8192), "low", 85),
        ("gpt-4.1", (1024, 1024), None, 765),
        ("o3", (1024, 1024), "high", 75 + 150 * 4),
        ("gpt-5", (1024, 1024), "auto", 70 + 140 * 4),
        ("gpt-4o-mini", (1024, 1024), "high", 2833 + 5667 * 4),
        ("openrouter/openai/gpt-4o", (512, 512), None, 85 + 170),
        # Edge cases from users' bills (community.openai.com, "Vision pricing calculator").
        ("gpt-4.1", (2049, 513), "high", 85 + 170 * 8),
        ("gpt-4.1", (2050, 513), "high", 85 + 170 * 4),
    ],
)
def test_openais_tile_rule_is_exact(model, size, detail, tokens):
    assert count_image(size, model, detail=detail) == TokenCount(tokens)


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4.1-mini", (1024, 1024), 1659),  # 1,024 patches at 1.62
        ("gpt-4.1-mini", (1800, 2400), 2353),  # the guide: 1,452 patches
        ("gpt-4.1-mini", (2048, 768), 2489),  # the maximum
        ("o4-mini", (32, 32), 2),
        # Anthropic: patches of 28 pixels, at most 1,568, or 4,784 since version 4.7.
        ("claude-sonnet-4-5", (1000, 1000), 1296),
        ("anthropic/claude-opus-4-20250514", (200, 200), 64),
        ("claude-haiku-4-5", (1092, 1092), 1521),
        ("claude-opus-4-8", (1092, 1092), 1521),
        ("claude-opus-4-8", (2000, 1500), 3888),
        # Google: one tile for a small image; 960 x 540 is the documentation's example of six tiles.
        ("gemini-2.5-flash", (384, 384), 258),
        ("gemini-2.5-flash", (960, 540), 6 * 258),
        ("gemini-3-pro-preview", (960, 540), 1120),
        # Without a known rule, OpenAI's applies.
        ("my-own", (1024, 1024), 765),
    ],
)
def test_counts_by_patches_and_other_rules_are_estimates(model, size, tokens):
    assert count_image(size, model) == TokenCount(tokens, estimated=True)


@pytest.mark.parametrize(("model", "most"), [("claude-sonnet-4-5", 1568), ("claude-opus-4-8", 4784)])
@given(width=st.integers(1, 8000), height=st.integers(1, 8000))
def test_claudes_image_tokens_stay_within_the_maximum(model, most, width, height):
    assert 1 <= count_image((width, height), model).tokens <= most
    if width * height > 4_000_000 and max(width, height) < 2 * min(width, height):
        assert count_image((width, height), model).tokens > most * 0.9


@given(width=st.integers(1, 10**6), height=st.integers(1, 10**6))
def test_patches_stay_within_their_budget(width, height):
    assert 1 <= count_image((width, height), "gpt-4.1-mini").tokens <= 2489
    for model in ("gpt-4o", "gemini-2.5-flash", "claude-opus-4-8", ""):
        assert count_image((width, height), model).tokens > 0


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": url(png(1024, 1024))}},
        {"type": "input_image", "image_url": url(png(1024, 1024)), "detail": "high"},
        {"type": "image", "source": {"type": "base64", "data": base64.b64encode(png(1024, 1024)).decode()}},
    ],
)
def test_every_form_of_an_image_part_is_counted(part):
    def count(parts):
        return count_messages([{"role": "user", "content": parts}], "gpt-4o").tokens

    assert count([part]) - count([]) == 765
