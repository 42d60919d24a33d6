"""Large values are encoded in slices to the same text as at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.runtime import json_slices
from specclient.runtime.json_slices import encode_in_slices

_ENCODERS = {
    "compact": json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")),
    "default": json.JSONEncoder(default=str),
}
_KEYS = st.text(max_size=3) | st.integers(0, 3) | st.booleans() | st.none()
_VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=9)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=9)
        | st.dictionaries(_KEYS, inner, max_size=3)
    ),
    max_leaves=60,
)


class _RecordedEncoder(json.JSONEncoder):
    """An encoder that keeps the lengths of its texts."""

    def __init__(self) -> None:
        super().__init__(separators=(",", ":"))
        self.lengths: list[int] = []

    def encode(self, o: Any) -> str:
        text = super().encode(o)
        self.lengths.append(len(text))
        return text


@pytest.mark.parametrize("encoder", _ENCODERS)
@pytest.mark.parametrize("size", [1, 5])
@given(value=_VALUES)
def test_the_text_is_the_encoders_for_slices_of_any_size(encoder: str, size: int, value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_slices, "_SLICE", size)
        assert encode_in_slices(_ENCODERS[encoder], value) == _ENCODERS[encoder].encode(value)


@pytest.mark.parametrize(
    "value",
    [
        [1] * 200_000,
        {f"k{i}": i for i in range(100_000)},
        {"messages": [{"role": "user", "content": [1, 2]}] * 40_000},
        {"a": {"b": [[[3] * 100_000], [4]]}},
        {"messages": [{"role": "user", "content": ["x" * 900_000]}] * 20},
    ],
    ids=["numbers", "names", "messages", "nested", "texts"],
)
def test_no_call_of_the_encoder_encodes_much_of_a_large_value(value: Any) -> None:
    encoder = _RecordedEncoder()
    text = encode_in_slices(encoder, value)
    assert json.loads(text) == value
    assert max(encoder.lengths) < 2_000_000
    assert len(encoder.lengths) > 10


def test_a_small_value_is_encoded_at_once() -> None:
    encoder = _RecordedEncoder()
    encode_in_slices(encoder, {"messages": [{"role": "user", "content": "x" * 1000}] * 100})
    assert len(encoder.lengths) == 1


def _circular() -> list[Any]:
    value: list[Any] = [0] * 5000
    value.append(value)
    return value


def _deep() -> Any:
    value: Any = [0] * 5000
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (_circular(), ValueError),
        (_deep(), RecursionError),
        ([{1, 2}] * 5000, TypeError),
        ([float("nan")] * 5000, ValueError),
    ],
    ids=["circular", "deep", "type", "nan"],
)
def test_errors_are_the_encoders(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as expected:
        _ENCODERS["compact"].encode(value)
    with pytest.raises(error) as raised:
        encode_in_slices(_ENCODERS["compact"], value)
    assert str(raised.value) == str(expected.value)
