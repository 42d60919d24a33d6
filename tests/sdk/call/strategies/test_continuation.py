"""A text and its continuation are joined once, whether or not the server repeats the text."""

from __future__ import annotations

import pytest

from specclient.call.strategies.continuation import PrefixJoiner

BEGUN = "The quick brown"


@pytest.mark.parametrize(
    "pieces", [["The quick brown fox"], list("The quick brown fox"), ["The ", "quick brown", " fox"]]
)
def test_a_streamed_echo_is_said_once(pieces: list[str]) -> None:
    head = PrefixJoiner(BEGUN)
    said = [head.push(piece, last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]
    assert "".join(said) == "The quick brown fox"
    assert said[0].startswith(BEGUN)


def test_a_streamed_beginning_that_only_looks_like_an_echo_is_kept() -> None:
    head = PrefixJoiner("ab")
    assert [head.push("a", last=False), head.push("c", last=False), head.push("", last=True)] == [
        "ab",
        "ac",
        "",
    ]
    head = PrefixJoiner("ab")
    assert head.push("a", last=True) == "aba"


def test_a_continuation_that_is_not_repeated_is_kept_unchanged() -> None:
    assert PrefixJoiner("(", may_repeat=False).push("(1)", last=True) == "((1)"
