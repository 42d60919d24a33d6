"""Counts of chats whose messages repeat their content in another form."""

from __future__ import annotations

from specclient.tokens import count_messages


def test_the_blocks_that_repeat_a_message_are_not_counted_beside_it() -> None:
    said = {"role": "assistant", "content": "word " * 100}
    blocks = [{"type": "text", "text": "word " * 100}]
    plain = count_messages([said], "claude-opus-5").tokens
    repeated = count_messages([{**said, "content_blocks": blocks}], "claude-opus-5").tokens
    assert plain <= repeated < plain + 20
