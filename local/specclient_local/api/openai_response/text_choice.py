"""Turn what the engine gives back into one choice of a text completion, whole or in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.types.completion import CompletionChoice, Logprobs
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.openai_response.logprobs import LegacyLogprobs, prompt_logprobs
from specclient_local.model.tokenizer import IncrementalDetokenizer, Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece, Scored
    from specclient_local.request.sequence import FinishReason, TokenScore


@dataclass(slots=True)
class TextChoice:
    """One of the answers to a prompt.

    Attributes:
        index: its number.
        prompt: as it was given.
        asked: what is to be told beside the text.
        tokenizer: of the model that answers.
    """

    index: int
    prompt: str | list[int]
    asked: EngineRequest
    tokenizer: Tokenizer
    _legacy: LegacyLogprobs | None = field(init=False, default=None)

    def whole(self, generation: Generation) -> CompletionChoice:
        """Return the choice in one object."""
        ids, new = generation.prompt_token_ids, generation.token_ids
        text, extra = self._prompt(ids, generation.scored)
        scores: list[TokenScore | None] = list(generation.logprobs or ())
        if self.asked.echo and generation.scored is not None:
            new, scores = [*ids, *new], [*generation.scored.scores, *scores]
        logprobs = self._legacy_part(ids, new, scores)
        extra |= self._new(generation.token_ids)
        return self._part(text + generation.text, generation.finish_reason, logprobs=logprobs, **extra)

    def opening(self, piece: Piece) -> list[CompletionChoice]:
        """Return what is told of the prompt."""
        ids = piece.prompt_token_ids or []
        text, extra = self._prompt(ids, piece.scored)
        echoed = self._legacy_part(ids, [], [])  # begun here, where the prompt is known
        if self.asked.echo and piece.scored is not None:
            echoed = self._legacy_part(ids, ids, piece.scored.scores)
        if not self.asked.echo and not extra:
            return []
        return [self._part(text, logprobs=echoed, **extra)]

    def piece(self, piece: Piece) -> list[CompletionChoice]:
        """Return the text of a piece, and what is told of its tokens."""
        told = piece.token_ids and (self.asked.token_ids or self.asked.logprobs is not None)
        if not piece.text and not told:
            return []
        extra = self._new(piece.token_ids)
        if self.asked.origins:
            extra["specclient"] = {"segments": [list(segment) for segment in piece.segments]}
        logprobs = self._legacy_part([], piece.token_ids, piece.logprobs)
        return [self._part(piece.text, logprobs=logprobs, **extra)]

    def finish(self, generation: Generation) -> list[CompletionChoice]:
        """Return why the answer ends."""
        return [self._part("", generation.finish_reason)]

    def _part(self, text: str, reason: FinishReason | None = None, **extra: Any) -> CompletionChoice:
        return CompletionChoice(index=self.index, text=text, finish_reason=reason, **extra)

    def _prompt(self, ids: list[int], scored: Scored | None) -> tuple[str, dict[str, Any]]:
        """Return a completion's echo, and the fields that tell of its prompt."""
        asked, echo, extra = self.asked, "", dict[str, Any]()
        if asked.echo:
            echo = self.prompt if isinstance(self.prompt, str) else self.tokenizer.decode(ids)
        if asked.prompt_logprobs is not None and scored is not None:
            extra["prompt_logprobs"] = prompt_logprobs(self.tokenizer, scored.scores, asked.prompt_logprobs)
        if asked.token_ids:
            extra["prompt_token_ids"] = ids
        return echo, extra

    def _new(self, token_ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(token_ids)} if self.asked.token_ids else {}

    def _legacy_part(
        self, prompt: list[int], tokens: Sequence[int], scores: Sequence[TokenScore | None]
    ) -> Logprobs | None:
        """Return the ``logprobs`` of a completion's next tokens, where asked for."""
        if self.asked.logprobs is None:
            return None
        if self._legacy is None:
            before = () if self.asked.echo else prompt
            self._legacy = LegacyLogprobs(
                self.tokenizer, self.asked.logprobs, IncrementalDetokenizer(self.tokenizer, before)
            )
        return self._legacy.part(tokens, scores)
