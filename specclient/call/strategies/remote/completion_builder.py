"""Turn text won by verification into completions as the target would have framed them, whole or in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specclient.call.strategies.context import StrategyContext, request_param
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage


class CompletionBuilder:
    """Frames one answer: all its chunks have the id and the model of the target's first."""

    def __init__(self, table: StrategyContext) -> None:
        self._table = table
        self._tells_ids = bool(request_param(table.request, "return_token_ids"))
        self._id: str | None = None
        self._model: str | None = None

    def served(self, answer: Any) -> None:
        """Note an answer of the target's, or a chunk of one."""
        self._id = self._id or getattr(answer, "id", None)
        self._model = self._model or getattr(answer, "model", None)

    def whole(self, text: str, ids: Sequence[int], finish: str | None, prompt: Sequence[int]) -> Completion:
        """Return the whole answer, ``prompt`` and ``ids`` being its tokens."""
        answer = self.chunk(text, ids, finish)
        if self._tells_ids:
            answer.choices[0].prompt_token_ids = list(prompt)  # type: ignore[attr-defined]
        return answer

    def chunk(self, text: str, ids: Sequence[int], finish: str | None = None) -> Completion:
        """Return a piece of it."""
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        if self._tells_ids:
            choice["token_ids"] = list(ids)
        return Completion.construct(
            id=self._id or "cmpl-remote",
            object="text_completion",
            created=int(self._table.created.timestamp()),
            model=self._model or self._table.model,
            choices=[choice],
        )

    def told(self, usage: CompletionUsage) -> Completion:
        """Return the chunk that tells its tokens."""
        chunk = self.chunk("", ())
        chunk.choices, chunk.usage = [], usage
        return chunk
