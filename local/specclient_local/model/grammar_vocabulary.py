"""A model's vocabulary in the form that llguidance reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from hashlib import blake2b

from specclient_local.model.tokenizer import Tokenizer

_TOKENIZED = 1024
"""Bytes that are tokenized at a time."""


class GrammarVocabulary:
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
        self.tokens = [*pieces, b""]
        self.special_token_ids = sorted(special.union(eos))
        self.ends = frozenset(self.special_token_ids)
        self.bos_token_id = None
        self.eos_token_id = vocab
        self._tokenizer = tokenizer
        self._unwritten = self.ends
        self._ids = {piece: i for i, piece in enumerate(pieces) if piece and i not in self._unwritten}
        self._longest = max(map(len, self._ids), default=0)

    @cached_property
    def digest(self) -> bytes:
        """Identifies the vocabulary."""
        content = json.dumps([[piece.decode("latin-1") for piece in self.tokens], self.special_token_ids])
        return blake2b(content.encode(), digest_size=16).digest()

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize text: by the tokenizer if that preserves every byte, else by the longest match.

        The result ends before the first bytes that no token covers, and covers the beginning of a long text
        only: the library passes all that must follow before each token, and uses the first token.
        """
        text = text[:_TOKENIZED]
        try:
            ids = self._tokenizer.encode(text.decode(), begins=False)
        except UnicodeDecodeError:
            ids = []
        known = all(i < self.eos_token_id and i not in self._unwritten for i in ids)
        if known and b"".join(self.tokens[i] for i in ids) == text:
            return ids
        ids, begin = [], 0
        while begin < len(text):
            ends = range(min(begin + self._longest, len(text)), begin, -1)
            end = next((end for end in ends if text[begin:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[text[begin:end]])
            begin = end
        return ids
