"""Encoded answers: every fact and body comes back, and any damage is noticed."""

from __future__ import annotations

import pytest

from specclient.response_cache.answer import CachedAnswer

ANSWER = CachedAnswer(
    parts=[b'{"a":1}', b"", b"\x00\n\xff"],
    made_ms=5,
    provider="mine",
    model="m",
    route="mine/m",
    dialect="anthropic",
    received=True,
    request_id="req-1",
    served_model="m-1",
    cost_nano=7,
    counts={"tool_calls": 2},
)


def test_an_answer_comes_back_as_it_was():
    assert CachedAnswer.decode(ANSWER.encode()) == ANSWER


def test_an_answer_that_was_cut_short_anywhere_is_refused():
    content = ANSWER.encode()
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"it is not in the format|its checksum is wrong"):
            CachedAnswer.decode(content[:end])


def test_an_answer_with_any_changed_byte_is_refused():
    content = ANSWER.encode()
    for place in range(len(content)):
        damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(ValueError, match=r"it is not in the format|its checksum is wrong"):
            CachedAnswer.decode(damaged)
