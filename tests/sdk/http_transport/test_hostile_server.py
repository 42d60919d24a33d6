"""Whatever a server sends, a call ends in a result or an OpenAIError, within bounds, with one ledger row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile_scripts import ANTHROPIC_EVENTS, CHAT, CHUNKS, GEMINI, RESPONSE, Script, encoded, scripts
from hostile_server import CLIENTS, OPERATIONS, Arena
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_HEALTH = list(HealthCheck)
#: Hypothesis keeps all examples of a run in memory, half a megabyte each.
_EXAMPLES_A_RUN = 500


def _fuzz(arena: Arena, examples: int, *, seeded: bool) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=seeded,
        database=None,
        suppress_health_check=_HEALTH,
    )
    @given(scripts(), st.sampled_from(CLIENTS), st.sampled_from(list(OPERATIONS)))
    def check(script: Script, kind: str, operation: str) -> None:
        arena.call(kind, operation, script)

    check()


def _head(kind: bytes, length: int | None) -> bytes:
    framing = b"" if length is None else b"content-length: %d\r\n" % length
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n" % (kind, framing)


def _whole(body: object) -> bytes:
    content = encoded(body)
    return _head(b"application/json", len(content)) + content


def _chunked(events: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in [*events, b""])


_CHAT_EVENTS = [*(b"data: " + encoded(chunk) + b"\n\n" for chunk in CHUNKS), b"data: [DONE]\n\n"]
_ANTHROPIC = [
    b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), encoded(event)) for event in ANTHROPIC_EVENTS
]
#: Complete responses, with the operations that they answer.
COMPLETE = {
    "chat": _whole(CHAT),
    "chat raw": _whole(CHAT),
    "responses": _whole(RESPONSE),
    "gemini": _whole(GEMINI),
    "chat stream": _chunked(_CHAT_EVENTS),
    "chat events": _chunked(_CHAT_EVENTS),
    "anthropic stream": _chunked(_ANTHROPIC),
}


def _cut_at_bytes(arena: Arena, kinds: tuple[str, ...], step: int) -> None:
    """Break each complete response off at every ``step``-th byte, by a close and by a reset."""
    for operation, response in COMPLETE.items():
        for kind in kinds:
            assert arena.call(kind, operation, Script((response,))) is not None
            for end in range(0, len(response), step):
                how = "reset" if end // step % 2 else "close"
                result = arena.call(kind, operation, Script((response[:end],), end=how))
                if result is not None:  # all that is missing is the end of the framing
                    missing = response[end:]
                    assert set(missing) <= set(b"0\r\n") or b"[DONE]" in missing, (operation, end, missing)


def test_every_response_ends_in_a_result_or_an_error(tmp_path: Path) -> None:
    with Arena(tmp_path) as arena:
        _fuzz(arena, 250, seeded=True)
        arena.check()


def test_responses_broken_off_at_any_byte_are_errors(tmp_path: Path) -> None:
    with Arena(tmp_path, timeout=5) as arena:
        _cut_at_bytes(arena, ("async", "sync httpx"), 61)
        arena.check()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a scripted body
def test_many_responses_end_in_a_result_or_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Arena(tmp_path) as arena:
        for _ in range(int(os.environ.get("HOSTILE_RESPONSES", "20000")) // _EXAMPLES_A_RUN):
            _fuzz(arena, _EXAMPLES_A_RUN, seeded=False)
            caplog.clear()  # records of exceptions hold their frames, with the bodies
        arena.check()
    with capsys.disabled():
        print(f"\nhostile server: {sum(arena.counts.values())} calls: {dict(arena.counts.most_common())}")


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_responses_broken_off_at_every_byte_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Arena(tmp_path, timeout=5) as arena:
        _cut_at_bytes(arena, CLIENTS, 1)
        arena.check()
    with capsys.disabled():
        print(
            f"\nbroken off at a byte: {sum(arena.counts.values())} calls: {dict(arena.counts.most_common())}"
        )
