"""Builds completions from verified text, complete or in chunks, in the target's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specclient.call.request_params import request_param
from specclient.call.strategies.context import StrategyContext
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage


class CompletionBuilder:
    """Builds the chunks of one answer, all with the id and model of the target's first answer."""

    def __init__(self, context: StrategyContext) -> None:
        self._context = context
        self._includes_ids = bool(request_param(context.request, "return_token_ids"))
        self._id: str | None = None
        self._model: str | None = None

    def note_target(self, answer: Any) -> None:
        """Note an answer of the target, or a chunk of one."""
        self._id = self._id or getattr(answer, "id", None)
        self._model = self._model or getattr(answer, "model", None)

    def completion(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, prompt_ids: Sequence[int]
    ) -> Completion:
        """Return the complete answer."""
        answer = self._chunk(text, token_ids, finish_reason)
        if self._includes_ids:
            answer.choices[0].prompt_token_ids = list(prompt_ids)  # type: ignore[attr-defined]
        return answer

    def chunks(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None = None
    ) -> list[Completion]:
        """Return the chunk of a text; none for nothing."""
        if not text and not token_ids and finish_reason is None:
            return []
        return [self._chunk(text, token_ids, finish_reason)]

    def _chunk(self, text: str, token_ids: Sequence[int], finish_reason: str | None = None) -> Completion:
        choice: dict[str, Any] = {
            "index": 0,
            "text": text,
            "finish_reason": finish_reason,
            "logprobs": None,
        }
        if self._includes_ids:
            choice["token_ids"] = list(token_ids)
        return Completion.with_defaults(
            id=self._id or "cmpl-remote",
            object="text_completion",
            created=int(self._context.created_at.timestamp()),
            model=self._model or self._context.model,
            choices=[choice],
        )

    def usage_chunk(self, usage: CompletionUsage) -> Completion:
        """Return the chunk that holds the usage."""
        chunk = self._chunk("", ())
        chunk.choices, chunk.usage = [], usage
        return chunk
