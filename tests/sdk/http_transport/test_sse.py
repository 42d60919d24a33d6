"""The decoder of server-sent events, which follows the HTML standard for bytes split at any place."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specclient.http_transport.sse import ServerSentEvent, SSEDecoder


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.flush()


def reference(body: bytes) -> list[ServerSentEvent]:
    """The algorithm of the HTML standard, line by line, which also emits an unterminated event at the end."""
    events: list[ServerSentEvent] = []
    data: list[bytes] = []
    event = last_id = None
    for line in [*re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf")), b""]:
        if not line:
            if data:
                events.append(ServerSentEvent(b"\n".join(data), event, last_id))
            data, event = [], None
            continue
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        match name:
            case b"data":
                data.append(value)
            case b"event":
                event = value.decode("utf-8", "replace") or None
            case b"id" if b"\0" not in value:
                last_id = value.decode("utf-8", "replace")
    return events


ASCII = b"data: {}|data:x|data|data:  two| data: no|event: a|event|id: 7|id|retry: 10|retry: x|: note|:||||"
OTHER = ["data: \u20ac", "id: \0", "\u2028", "data: a\u2028b\x85c\x0b\x0cd\x1ce"]
LINES = st.sampled_from([*ASCII.split(b"|"), *map(str.encode, OTHER)])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
BODIES = st.lists(st.tuples(LINES, ENDS), max_size=24).map(lambda rows: b"".join(a + b for a, b in rows))


def cut(body: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in pairwise(marks)]


@given(st.booleans(), BODIES, st.lists(st.integers(0, 10_000), max_size=30))
def test_input_split_anywhere_gives_the_same_events(bom: bool, body: bytes, places: list[int]) -> None:
    body = b"\xef\xbb\xbf" * bom + body
    assert decode(*cut(body, places)) == decode(body) == reference(body)


@given(BODIES)
def test_input_byte_by_byte_gives_the_same_events(body: bytes) -> None:
    assert decode(*(body[i : i + 1] for i in range(len(body)))) == reference(body)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_arbitrary_bytes_are_decoded_without_an_error(chunks: list[bytes]) -> None:
    assert decode(*chunks) == decode(b"".join(chunks)) == reference(b"".join(chunks))


def test_the_fields_of_events_are_decoded() -> None:
    body = (
        b": hello\nevent: add\nid: 1\ndata: YHOO\ndata:+2\ndata\n\ndata:  10\n\nevent: lost\n\nid\ndata:x\n\n"
    )
    assert decode(body) == [
        ServerSentEvent(b"YHOO\n+2\n", "add", "1"),
        ServerSentEvent(b" 10", None, "1"),
        ServerSentEvent(b"x", None, ""),
    ]


def test_lines_end_at_cr_lf_or_crlf_only() -> None:
    data = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode()
    assert decode(b"data: " + data + b"\r\rdata: y\r\n\r\ndata: z\n\n") == [
        ServerSentEvent(data),
        ServerSentEvent(b"y"),
        ServerSentEvent(b"z"),
    ]


def test_an_event_without_data_is_skipped_and_one_with_empty_data_is_not() -> None:
    assert decode(b"event: ping\n\n: note\n\ndata:\n\n") == [ServerSentEvent(b"")]


def test_an_unterminated_event_at_the_end_is_emitted() -> None:
    assert decode(b"data: a\n\ndata: [DONE]") == [ServerSentEvent(b"a"), ServerSentEvent(b"[DONE]")]
    assert decode(b"data: [DONE]\n") == [ServerSentEvent(b"[DONE]")]


def test_an_event_is_emitted_as_soon_as_its_cr_is_received() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\r") == [ServerSentEvent(b"a")]
    assert decoder.feed(b"\ndata: b\r\n\r") == [ServerSentEvent(b"b")]
    assert decoder.feed(b"\n") == []


def test_the_retry_field_accepts_digits_only() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"retry: 25\nretry: 3s\nretry: -1\n")
    assert decoder.retry_ms == 25


def test_a_long_event_in_many_chunks_is_joined_once() -> None:
    """20 MB in 80,000 chunks: quadratic copying would move 800 GB and exceed the suite's timeout."""
    piece = b"x" * 256
    events = decode(b"data: ", *[piece] * 80_000, b"\n\n")
    assert [len(event.data) for event in events] == [256 * 80_000]


def test_an_event_of_many_lines_is_decoded_in_linear_time() -> None:
    events = decode(*[b"data: x\n"] * 100_000, b"\n")
    assert [len(event.data) for event in events] == [199_999]
