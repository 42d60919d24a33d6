"""One choice of a text completion, complete or as chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.types.completion import CompletionChoice, Logprobs
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.openai_response.logprobs import LegacyLogprobs, prompt_logprobs
from specclient_local.api.openai_response.stop_reason import stop_reason
from specclient_local.model.detokenizer import IncrementalDetokenizer
from specclient_local.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece, Scored
    from specclient_local.request.sequence import FinishReason, TokenScore


@dataclass(slots=True)
class TextChoice:
    """Builds one choice of a text completion.

    Attributes:
        index: the choice's number in the response.
        prompt: text or token ids, as the caller passed it.
        request: the parsed request; determines the fields of the choice.
        tokenizer: the model's.
    """

    index: int
    prompt: str | list[int]
    request: EngineRequest
    tokenizer: Tokenizer
    _logprobs: LegacyLogprobs | None = field(init=False, default=None)

    def complete(self, generation: Generation) -> CompletionChoice:
        """Return the complete choice."""
        prompt_ids, tokens = generation.prompt_token_ids, generation.token_ids
        text, extra = self._prompt_fields(prompt_ids, generation.scored)
        scores: list[TokenScore | None] = list(generation.logprobs or ())
        if self.request.echo and generation.scored is not None:
            tokens, scores = [*prompt_ids, *tokens], [*generation.scored.scores, *scores]
        logprobs = self._next_logprobs(prompt_ids, tokens, scores)
        extra |= self._token_ids(generation.token_ids) | stop_reason(generation)
        return self._chunk(text + generation.text, generation.finish_reason, logprobs=logprobs, **extra)

    def first_chunks(self, piece: Piece) -> list[CompletionChoice]:
        """Return the chunk with the echoed prompt and its log-probabilities, where requested."""
        prompt_ids = piece.prompt_token_ids or []
        text, extra = self._prompt_fields(prompt_ids, piece.scored)
        logprobs = self._next_logprobs(prompt_ids, [], [])  # creates the state, which needs the prompt
        if self.request.echo and piece.scored is not None:
            logprobs = self._next_logprobs(prompt_ids, prompt_ids, piece.scored.scores)
        if not self.request.echo and not extra:
            return []
        return [self._chunk(text, logprobs=logprobs, **extra)]

    def chunks(self, piece: Piece) -> list[CompletionChoice]:
        """Return the text of a piece, with its token ids, log-probabilities and segments if requested."""
        has_fields = piece.token_ids and (self.request.token_ids or self.request.logprobs is not None)
        if not piece.text and not has_fields:
            return []
        extra = self._token_ids(piece.token_ids)
        if self.request.origins:
            extra["specclient"] = {"segments": [list(segment) for segment in piece.segments]}
        logprobs = self._next_logprobs([], piece.token_ids, piece.logprobs)
        return [self._chunk(piece.text, logprobs=logprobs, **extra)]

    def last_chunks(self, generation: Generation) -> list[CompletionChoice]:
        """Return the chunk with the finish reason."""
        return [self._chunk("", generation.finish_reason, **stop_reason(generation))]

    def _chunk(self, text: str, reason: FinishReason | None = None, **extra: Any) -> CompletionChoice:
        return CompletionChoice(index=self.index, text=text, finish_reason=reason, **extra)

    def _prompt_fields(self, ids: list[int], scored: Scored | None) -> tuple[str, dict[str, Any]]:
        """Return the echoed text, and the response fields about the prompt."""
        request, echo, extra = self.request, "", dict[str, Any]()
        if request.echo:
            echo = self.prompt if isinstance(self.prompt, str) else self.tokenizer.decode(ids)
        if request.prompt_logprobs is not None and scored is not None:
            extra["prompt_logprobs"] = prompt_logprobs(self.tokenizer, scored.scores, request.prompt_logprobs)
        if request.token_ids:
            extra["prompt_token_ids"] = ids
        return echo, extra

    def _token_ids(self, token_ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(token_ids)} if self.request.token_ids else {}

    def _next_logprobs(
        self, prompt: list[int], tokens: Sequence[int], scores: Sequence[TokenScore | None]
    ) -> Logprobs | None:
        """Return the ``logprobs`` of the next tokens, or None where they are not requested."""
        if self.request.logprobs is None:
            return None
        if self._logprobs is None:
            before = () if self.request.echo else prompt
            self._logprobs = LegacyLogprobs(
                self.tokenizer, self.request.logprobs, IncrementalDetokenizer(self.tokenizer, before)
            )
        return self._logprobs.append(tokens, scores)
