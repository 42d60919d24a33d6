"""JSON bodies: the number of their values is bounded before they are parsed, whatever is in their strings."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.openai_http import json_body
from specclient.openai_http.errors import ServingError
from specclient.openai_http.json_body import check_values, json_object

_TEXTS = st.text(st.sampled_from('a,[{"\\é\n:]}'), max_size=8)
_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | _TEXTS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4) | st.dictionaries(_TEXTS, inner, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


def _number_of_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    names = len(value) if isinstance(value, dict) else 0
    return 1 + 4 * names + sum(map(_number_of_values, inner))


def _refuse(body: bytes, most: int) -> None:
    with pytest.raises(ServingError, match=f"more than {most} JSON values.*json_values") as raised:
        check_values(body, most)
    assert (raised.value.status, raised.value.code) == (400, "too_many_values")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64 * 2**10])
@given(value=_VALUES)
def test_values_are_counted_exactly_in_slices_of_any_size(size: int, value: Any) -> None:
    body, count = json.dumps(value, ensure_ascii=False).encode(), _number_of_values(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_body, "_SLICE", size)
        check_values(body, max(count, json_body._text_cost(body)))
        if count > 1:
            _refuse(body, count - 1)


def test_marks_inside_strings_are_no_values() -> None:
    text = '[{,"\\' * 100_000
    body = json.dumps({"prompt": text}).encode()
    assert json_object(body, 100_000) == {"prompt": text}


def test_long_integers_count_as_several_values() -> None:
    check_values(b"[" + b"123456789012345678," * 500 + b"0]", 502)
    _refuse(b"[" + b"1234567890123456789," * 500 + b"0]", 3001)
    _refuse(b"[" + b"1" * 4000 + b",0]", 500)
    check_values(b'["' + b"1234567890123456789," * 500 + b'"]', 502)


@pytest.mark.parametrize("text", ["é" * 8_000, "\\n" * 2_000], ids=["not ASCII", "escapes"])
def test_text_that_is_slow_to_parse_counts_as_values(text: str) -> None:
    body = f'{{"a":"{text}"}}'.encode()
    check_values(body, 506)
    with pytest.raises(
        ServingError, match="more escape sequences or bytes of other than ASCII text"
    ) as raised:
        check_values(body, 499)
    assert (raised.value.status, raised.value.code) == (400, "too_many_values")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"0," * 1_000_000 + b"0]}",
        b'{"a":[' + b"[]," * 1_000_000 + b"0]}",
        b'{"a":[' + b'{"a":""},' * 500_000 + b"0]}",
        b'{"a":' + b"[" * 1_000_000,
        b'{"a":[' + b'"["' * 2_000_000,
    ],
    ids=["numbers", "arrays", "objects", "nesting", "invalid"],
)
def test_a_body_of_many_small_values_is_refused_without_being_parsed(body: bytes) -> None:
    """Parsed, each of these would be about a hundred megabytes of objects."""
    before = sys.getallocatedblocks()
    with pytest.raises(ServingError) as raised:
        json_object(body)
    assert raised.value.code == "too_many_values"
    assert sys.getallocatedblocks() - before < 10_000


def test_the_limit_is_a_servers() -> None:
    body = b'{"a":[1,2,3,4]}'
    assert json_object(body, 10) == {"a": [1, 2, 3, 4]}
    with pytest.raises(ServingError, match="more than 9 JSON values"):
        json_object(body, 9)
