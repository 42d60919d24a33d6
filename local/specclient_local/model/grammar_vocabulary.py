"""A model's vocabulary in the form that llguidance reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from hashlib import blake2b

from specclient_local.model.grammar_worker import TOKENIZED_BYTES, LongestMatchVocabulary
from specclient_local.model.tokenizer import Tokenizer


class GrammarVocabulary(LongestMatchVocabulary):
    """A model's vocabulary in the form llguidance reads: the bytes of each token, and a tokenizer function.

    ``eos_token_id`` is an additional id behind the vocabulary: a model may have several end tokens or none,
    so :class:`GrammarState` handles them itself.

    Attributes:
        tokens: ``[vocab + 1]`` the bytes of each token.
        special_token_ids: ids of non-text tokens; a grammar refers to them as ``<name>``.
        ends: the same, as a set.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos: Iterable[int]) -> None:
        pieces = [tokenizer.piece(token) for token in range(vocab)]
        special = {
            i for i, piece in enumerate(pieces) if tokenizer.special(piece.decode(errors="replace")) == i
        }
        super().__init__([*pieces, b""], sorted(special.union(eos)))
        self.ends = frozenset(self.special_token_ids)
        self._tokenizer = tokenizer

    @cached_property
    def digest(self) -> bytes:
        """Identifies the vocabulary."""
        content = json.dumps([[piece.decode("latin-1") for piece in self.tokens], self.special_token_ids])
        return blake2b(content.encode(), digest_size=16).digest()

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize text: by the tokenizer if that preserves every byte, else by the longest match.

        The result ends before the first bytes that no token covers. Of a long text only the beginning is
        tokenized: before each token, the library passes all text that must follow, and uses one token of it.
        """
        text = text[:TOKENIZED_BYTES]
        try:
            ids = self._tokenizer.encode(text.decode(), begins=False)
        except UnicodeDecodeError:
            ids = []
        known = all(i < self.eos_token_id and i not in self.ends for i in ids)
        if known and b"".join(self.tokens[i] for i in ids) == text:
            return ids
        return super().__call__(text)
