"""Pieces and lines are the same, however a body arrives."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.errors import ResponseTooLargeError
from specclient.resources.body_pieces import LineSplitter, PieceCutter


def parts(body, cuts):
    """Return the body in parts that end at some of its positions."""
    ends = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[begin:end] for begin, end in pairwise(ends)]


def joined(splitter, received):
    return [piece for part in received for piece in splitter.add(part)] + list(splitter.rest())


@given(st.binary(max_size=40), st.lists(st.integers(0, 100)), st.integers(1, 9))
def test_all_pieces_but_the_last_have_the_size(body, cuts, size):
    expected = [body[i : i + size] for i in range(0, len(body), size)]
    assert joined(PieceCutter(size), parts(body, cuts)) == expected


def test_without_a_size_parts_are_left_as_received_without_empty_ones():
    assert joined(PieceCutter(None), [b"ab", b"", b"c"]) == [b"ab", b"c"]


@given(st.text("a\r\n", max_size=20), st.lists(st.integers(0, 100)))
def test_lines_are_those_of_the_whole_text(text, cuts):
    assert joined(LineSplitter(math.inf), parts(text, cuts)) == text.splitlines()


@pytest.mark.parametrize("received", [["a\r", "\nb"], ["a\r\n", "b"], ["a", "\r\nb"]])
def test_a_line_end_cut_in_two_ends_one_line(received):
    assert joined(LineSplitter(math.inf), received) == ["a", "b"]


def test_a_line_without_an_end_is_refused_at_the_limit():
    lines = LineSplitter(10)
    assert list(lines.add("12345\n1234567890")) == ["12345"]
    with pytest.raises(ResponseTooLargeError, match="max_event_bytes is 10") as caught:
        list(lines.add("é"))
    assert caught.value.read == 12
