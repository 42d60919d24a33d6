"""Log-probabilities in the formats of OpenAI's and vLLM's responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specclient.types.chat.logprobs import ChatCompletionTokenLogprob, ChoiceLogprobs, TopLogprob
from specclient.types.completion import Logprobs
from specclient_local.model.detokenizer import IncrementalDetokenizer
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.sequence import TokenScore

MIN_LOGPROB = -9999.0
"""Replaces minus infinity, which JSON cannot represent; OpenAI uses the same value."""


def chat_logprobs(tokenizer: Tokenizer, scores: Iterable[TokenScore]) -> ChoiceLogprobs:
    """Return ``choices[].logprobs`` of a chat: one entry per generated token, including an end token."""
    return ChoiceLogprobs(
        content=[
            ChatCompletionTokenLogprob(
                **_named(tokenizer, score.token, score.logprob),
                top_logprobs=[TopLogprob(**_named(tokenizer, *pair)) for pair in score.top],
            )
            for score in scores
        ]
    )


def prompt_logprobs(
    tokenizer: Tokenizer, scores: Iterable[TokenScore | None], top: int
) -> list[dict[str, dict[str, Any]] | None]:
    """Return vLLM's ``choices[].prompt_logprobs``: per prompt token, it and ``top`` alternatives, by id."""
    return [None if score is None else _by_id(tokenizer, score, top) for score in scores]


def _by_id(tokenizer: Tokenizer, score: TokenScore, top: int) -> dict[str, dict[str, Any]]:
    ranked = {score.token: (score.logprob, score.rank)}
    for rank, (token, logprob) in enumerate(score.top[:top], 1):
        ranked.setdefault(token, (logprob, rank))
    return {
        str(token): {"logprob": _finite(logprob), "rank": rank, "decoded_token": _text(tokenizer, token)}
        for token, (logprob, rank) in ranked.items()
    }


@dataclass(slots=True)
class LegacyLogprobs:
    """The ``logprobs`` object of a text completion, built incrementally.

    Args:
        tokenizer: the model's.
        top: alternatives per token; the token itself is always included.
        detokenizer: finds each token's offset in the text. Tokens that share one character have its offset.
    """

    tokenizer: Tokenizer
    top: int
    detokenizer: IncrementalDetokenizer
    _offset: int = 0

    def append(self, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> Logprobs:
        """Return the arrays for the next tokens; a token without a score (a prompt's first) has nulls."""
        texts = [_text(self.tokenizer, token) for token in tokens]
        offsets: list[int] = []
        for token, text in zip(tokens, texts, strict=True):
            start, self._offset = self._offset, self._offset + len(self.detokenizer.push(token))
            # The detokenizer may first emit earlier bytes that formed no character; they precede this token.
            offsets.append(max(start, self._offset - len(text)))
        return Logprobs.with_defaults(
            tokens=texts,
            token_logprobs=[None if score is None else _finite(score.logprob) for score in scores],
            top_logprobs=[None if score is None else self._top(score) for score in scores],
            text_offset=offsets,
            token_ids=list(tokens),
        )

    def _top(self, score: TokenScore) -> dict[str, float]:
        """Return the alternatives by text; the most likely one where several tokens have the same text."""
        by_text: dict[str, float] = {}
        for token, logprob in (*score.top[: self.top], (score.token, score.logprob)):
            by_text.setdefault(_text(self.tokenizer, token), _finite(logprob))
        return by_text


def _named(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    piece = tokenizer.piece(token)
    return {"token": piece.decode(errors="replace"), "bytes": list(piece), "logprob": _finite(logprob)}


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.piece(token).decode(errors="replace")


def _finite(logprob: float) -> float:
    return max(logprob, MIN_LOGPROB)
