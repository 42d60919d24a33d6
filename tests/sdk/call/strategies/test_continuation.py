"""Joining a text and its continuation, which may repeat the text, so that the text occurs once."""

from __future__ import annotations

import pytest

from specclient.call.strategies.continuation import PrefixJoiner

BEGUN = "The quick brown"


@pytest.mark.parametrize(
    "pieces", [["The quick brown fox"], list("The quick brown fox"), ["The ", "quick brown", " fox"]]
)
def test_a_streamed_echo_is_emitted_once(pieces: list[str]) -> None:
    head = PrefixJoiner(BEGUN)
    emitted = [head.push(piece, last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]
    assert "".join(emitted) == "The quick brown fox"
    assert emitted[0].startswith(BEGUN)


def test_a_streamed_continuation_that_resembles_an_echo_is_kept() -> None:
    head = PrefixJoiner("ab")
    assert [head.push("a", last=False), head.push("c", last=False), head.push("", last=True)] == [
        "ab",
        "ac",
        "",
    ]
    head = PrefixJoiner("ab")
    assert head.push("a", last=True) == "aba"


def test_without_may_repeat_a_continuation_is_kept_unchanged() -> None:
    assert PrefixJoiner("(", may_repeat=False).push("(1)", last=True) == "((1)"
