"""AWS's frames of events: read as botocore reads them, however they are cut, and refused if damaged."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from bedrock_bodies import SAMPLES, encoded_headers, frame, frames, raw_frame, sample
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from specclient import APIConnectionError, APIResponseValidationError, ResponseTooLargeError
from specclient.http_transport.event_frames import FrameDecoder, stream_decoder
from specclient.http_transport.sse import SSEDecoder
from specclient.types.wire import FRAMES_TYPE

ALL = b"".join(map(frames, SAMPLES))


def _read(data: bytes, size: int = 1 << 20) -> list[tuple[str | None, bytes]]:
    decoder, found = FrameDecoder(), []
    for at in range(0, len(data), size):
        found += decoder.feed(data[at : at + size])
    assert decoder.flush() == []
    return [(event.event, event.data) for event in found]


def _read_by_botocore(data: bytes) -> list[tuple[str | None, bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [
        (message.headers.get(":event-type") or message.headers.get(":exception-type"), message.payload)
        for message in buffer
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_events_are_those_that_botocore_reads(name: str) -> None:
    found = _read(frames(name))
    assert found == _read_by_botocore(frames(name))
    assert [[event, json.loads(data)] for event, data in found] == sample(name)["events"]


@pytest.mark.parametrize("size", [1, 3, 13, 100, 4_096])
def test_pieces_may_be_cut_anywhere(size: int) -> None:
    assert _read(ALL, size) == _read_by_botocore(ALL)


@given(st.binary(max_size=64), st.dictionaries(st.text("abc-:", min_size=1, max_size=9), st.text(max_size=9)))
def test_any_payload_and_headers_are_read_as_by_botocore(payload: bytes, headers: dict[str, str]) -> None:
    data = raw_frame(encoded_headers({**headers, ":event-type": "x"}), payload)
    assert _read(data) == [("x", payload or b"{}")]
    assert _read_by_botocore(data) == [("x", payload)]


def test_headers_of_every_type_are_passed_over() -> None:
    typed = b"".join(
        bytes([1]) + b"h" + bytes([kind]) + value
        for kind, value in (
            *((0, b""), (1, b""), (2, b"a"), (3, b"ab"), (4, b"abcd"), (5, b"abcdefgh")),
            *((6, struct.pack("!H", 3) + b"raw"), (8, b"abcdefgh"), (9, b"0123456789abcdef")),
        )
    )
    data = raw_frame(typed + encoded_headers({":event-type": "x"}), b"{}")
    assert _read(data) == [("x", b"{}")]


def test_exceptions_and_errors_are_events_of_their_own() -> None:
    told = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "Broken."}
    data = frame("throttlingException", {"message": "Slow."}, "exception") + raw_frame(
        encoded_headers(told), b""
    )
    found = _read(data + frame("odd", {}, "exception"))
    assert [name for name, _ in found] == ["throttlingException", "error", "oddException"]
    assert json.loads(found[1][1]) == {"code": "InternalFailure", "message": "Broken."}


@given(st.integers(0, len(frames("text")) - 1), st.integers(1, 255))
def test_a_changed_byte_is_never_read_as_an_event(at: int, change: int) -> None:
    data = bytearray(frames("text"))
    data[at] ^= change
    decoder, found = FrameDecoder(), list[object]()

    def read() -> None:
        for position in range(0, len(data), 80):
            found.extend(decoder.feed(data[position : position + 80]))
        decoder.flush()

    with pytest.raises((APIResponseValidationError, APIConnectionError, ResponseTooLargeError)):
        read()
    assert found == FrameDecoder().feed(frames("text"))[: len(found)]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (b"\x05:even", "headers are malformed"),
        (b"\x01h\x07\x00\xffshort", "headers are malformed"),
        (b"\x01h\x63", "headers are malformed"),
        (b"\x01\xff\x00", "headers are malformed"),
        (b"\x01h\x06\x00", "headers are malformed"),
        (encoded_headers({":message-type": "event"}), "does not name its event"),
        (encoded_headers({":message-type": "exception"}), "does not name its event"),
    ],
)
def test_malformed_headers_are_one_clear_error(headers: bytes, why: str) -> None:
    with pytest.raises(APIResponseValidationError, match=why):
        FrameDecoder().feed(raw_frame(headers, b"{}"))


def _prelude(size: int, headers: int) -> bytes:
    start = struct.pack("!II", size, headers)
    return start + struct.pack("!I", zlib.crc32(start))


@pytest.mark.parametrize(("size", "headers"), [(15, 0), (100, 85), (2**20, 2**17 + 1), (0, 0)])
def test_impossible_lengths_are_refused_at_once(size: int, headers: int) -> None:
    with pytest.raises(APIResponseValidationError, match="of which"):
        FrameDecoder().feed(_prelude(size, headers))


def test_a_frame_has_a_longest_length_which_is_checked_before_it_is_read() -> None:
    assert len(FrameDecoder(200).feed(frame("x", {}))) == 1
    with pytest.raises(ResponseTooLargeError, match="max_event_bytes is 200"):
        FrameDecoder(200).feed(_prelude(2**31, 0))


def test_a_stream_that_ends_within_a_frame_is_an_interrupted_connection() -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(frames("text")[:-1])) == 6
    assert decoder.is_within_event
    with pytest.raises(APIConnectionError, match="beginning of a frame"):
        decoder.flush()


def test_the_decoder_follows_from_the_content_type() -> None:
    assert isinstance(stream_decoder(f"{FRAMES_TYPE}; v=1"), FrameDecoder)
    assert isinstance(stream_decoder(None), SSEDecoder)
    assert isinstance(stream_decoder("text/event-stream"), SSEDecoder)
