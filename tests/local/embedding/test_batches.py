"""Batches: every text once, the longest first, within the size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from specclient_local.embedding.batches import batch_tokens, batches


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 1000))
def test_every_text_is_in_one_batch_within_the_size(lengths: list[int], tokens: int) -> None:
    found = list(batches(lengths, tokens))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= tokens
    flat = [lengths[index] for batch in found for index in batch]
    assert flat == sorted(lengths, reverse=True)


def test_larger_models_get_smaller_batches_on_a_cpu() -> None:
    sizes = [batch_tokens(count, on_cpu=True) for count in (0, 10**6, 22 * 10**6, 600 * 10**6)]
    assert sizes == [8192, 8192, 780, 512]
    assert batch_tokens(10**9, on_cpu=False) == 32_768
