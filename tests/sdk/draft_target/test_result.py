"""Acceptance of a draft: the share of its words in the answer, by longest common subsequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.draft_target import acceptance
from specclient.draft_target.result import lcs_length, split_words

words = st.lists(st.sampled_from("abcd"), max_size=90)


def longest_common(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before, row = row, [0] * (len(b) + 1)
        for j, y in enumerate(b, 1):
            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return row[-1]


@given(words, words)
def test_lcs_length_matches_the_textbook_algorithm(draft: list[str], output: list[str]) -> None:
    assert lcs_length(draft, output) == longest_common(draft, output)


@pytest.mark.parametrize(
    ("draft", "output", "share"),
    [
        ("one two", "one two three", 1.0),
        ("two one", "one two", 0.5),  # words count only in the same order
        ("one two three four", "one 2 three", 0.5),
        ("def f(x):", "def f(y):", 5 / 6),  # def f ( x ) :
        ("Nein.", "Ja.", 0.5),
        ("快速狐狸", "快的狐狸", 0.75),
        ("one", "", 0.0),
        (" \n", "one", None),
        ("", "", None),
    ],
)
def test_acceptance_is_the_share_of_the_drafts_words_in_the_output(
    draft: str, output: str, share: float | None
) -> None:
    assert acceptance(draft, output) == (None if share is None else pytest.approx(share))


def test_text_is_split_into_words_and_punctuation() -> None:
    assert split_words("don't  stop_it 3.5€\n日本") == [
        "don",
        "'",
        "t",
        "stop_it",
        "3",
        ".",
        "5",
        "€",
        "日",
        "本",
    ]
