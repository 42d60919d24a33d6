"""Token ids of texts: limits, truncation, prompts and large texts."""

from __future__ import annotations

import pytest
from specclient_local.embedding.layout_reader import read_layout
from specclient_local.embedding.text_tokens import TextTokenizer

from specclient.errors import ContextOverflowError


@pytest.fixture(scope="module")
def tokenizer(embedding_checkpoint) -> TextTokenizer:
    return TextTokenizer(read_layout(embedding_checkpoint(kind="bert", pooling="mean")))


def test_special_tokens_are_added(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("ab", "", 64, truncate=False).ids
    assert (ids[0], ids[-1], len(ids)) == (0, 1, 4)


def test_a_text_of_the_limit_is_taken_whole(tokenizer: TextTokenizer) -> None:
    text = "z" * 6  # a token for each letter
    assert len(tokenizer.encode(text, "", 8, truncate=False).ids) == 8
    with pytest.raises(ContextOverflowError, match="has 8 tokens, but the model takes 7: shorten it"):
        tokenizer.encode(text, "", 7, truncate=False)


def test_a_longer_text_is_cut_at_its_end_if_asked(tokenizer: TextTokenizer) -> None:
    whole = tokenizer.encode("xyz" * 9, "", 64, truncate=True).ids
    assert tokenizer.encode("xyz" * 9, "", 8, truncate=True).ids == (*whole[:7], whole[-1])


def test_a_prompt_counts_without_the_end_token(tokenizer: TextTokenizer) -> None:
    found = tokenizer.encode("text", "zz", 64, truncate=False)
    assert found.prompt == 3  # the beginning and two letters
    assert found.ids == tokenizer.encode("zztext", "", 64, truncate=False).ids


def test_a_large_text_is_encoded_as_a_small_one(tokenizer: TextTokenizer) -> None:
    text = "def fibonacci(n): " * 2000
    found = tokenizer.encode(text, "", 10**6, truncate=False).ids
    assert found[1:-1] == tokenizer.encode("def fibonacci(n): ", "", 64, truncate=False).ids[1:-1] * 2000


def test_the_tokenizer_states_no_limit(tokenizer: TextTokenizer) -> None:
    assert tokenizer.own_limit is None
    assert tokenizer.highest < 300
