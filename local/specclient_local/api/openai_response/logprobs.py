"""Turn scores of tokens into the log-probabilities of OpenAI's and vLLM's answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specclient.types.chat.logprobs import ChatCompletionTokenLogprob, ChoiceLogprobs, TopLogprob
from specclient.types.completion import Logprobs
from specclient_local.model.tokenizer import IncrementalDetokenizer, Tokenizer
from specclient_local.request.sequence import TokenScore

MIN_LOGPROB = -9999.0
"""Stands for the log-probability of the impossible, as JSON has no infinity (OpenAI does the same)."""


def chat_logprobs(tokenizer: Tokenizer, scores: Iterable[TokenScore]) -> ChoiceLogprobs:
    """Return ``choices[].logprobs`` of a chat: an entry a generated token, an end token included."""
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
    """Return vLLM's ``choices[].prompt_logprobs``: for each token itself and its alternatives, by id."""
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
    """The ``logprobs`` of a text completion, part by part.

    Args:
        tokenizer: whose ids.
        top: alternatives of each token; the token itself is among them in any case.
        text: finds where in the answer's text each token begins; all tokens of one character begin where
            it does.
    """

    tokenizer: Tokenizer
    top: int
    text: IncrementalDetokenizer
    _offset: int = 0

    def part(self, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> Logprobs:
        """Return the next tokens' arrays; a token without a score (a prompt's first) has nulls."""
        written = [_text(self.tokenizer, token) for token in tokens]
        offsets: list[int] = []
        for token, own in zip(tokens, written, strict=True):
            begin, self._offset = self._offset, self._offset + len(self.text.push(token))
            # Bytes that never became a character come out before the token that shows it.
            offsets.append(max(begin, self._offset - len(own)))
        return Logprobs.construct(
            tokens=written,
            token_logprobs=[None if score is None else _finite(score.logprob) for score in scores],
            top_logprobs=[None if score is None else self._top(score) for score in scores],
            text_offset=offsets,
            token_ids=list(tokens),
        )

    def _top(self, score: TokenScore) -> dict[str, float]:
        """Return the alternatives by their text; of several with one text the likeliest."""
        told: dict[str, float] = {}
        for token, logprob in (*score.top[: self.top], (score.token, score.logprob)):
            told.setdefault(_text(self.tokenizer, token), _finite(logprob))
        return told


def _named(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    piece = tokenizer.piece(token)
    return {"token": piece.decode(errors="replace"), "bytes": list(piece), "logprob": _finite(logprob)}


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.piece(token).decode(errors="replace")


def _finite(logprob: float) -> float:
    return max(logprob, MIN_LOGPROB)
