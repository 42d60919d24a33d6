"""Decoder of Gemini's streamed responses into chat completion chunks.

https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specclient.providers.errors import invalid_response_error
from specclient.providers.gemini.grounding import billed_searches, queries_in
from specclient.providers.gemini.response import (
    CandidateState,
    GeminiResponseFields,
    InvalidGeminiResponseError,
    blocked_choices,
    body_of,
    candidates_of,
    choice_of,
    common_fields,
    read,
)
from specclient.providers.gemini.usage import usage_fields
from specclient.types.chat import ChatCompletionChunk


@dataclass(slots=True)
class GeminiStreamReader:
    """Decoder of one stream, whose events contain additions to the candidates and the usage so far.

    When all candidates have ended, the usage is returned in a chunk of its own, as the last one.
    """

    _candidates: dict[int, CandidateState] = field(default_factory=dict)
    _usage: Any = None
    _queries: set[str] = field(default_factory=set)

    def __call__(self, data: bytes, event: str | None = None) -> list[ChatCompletionChunk] | None:
        """Return the chunks of an event.

        Raises:
            APIError: the event is an error.
            APIResponseValidationError: the event is malformed.
        """
        if data.strip() == b"[DONE]" or event == "ping":  # sent by some gateways
            return None
        body = body_of(data, None)
        try:
            return [read(ChatCompletionChunk, fields) for fields in self._chunks(body)]
        except InvalidGeminiResponseError as error:
            reason = str(error)
        raise invalid_response_error(data, None, reason)

    def _chunks(self, body: GeminiResponseFields) -> list[GeminiResponseFields]:
        """Return the fields of the chunks of an event."""
        fields = {**common_fields(body), "object": "chat.completion.chunk"}
        choices = [self._added(candidate, index, fields) for index, candidate in candidates_of(body)]
        if not choices and (choices := blocked_choices(body, "delta")):
            self._candidates.setdefault(0, CandidateState(0, "")).finished = True
        self._usage = body.get("usageMetadata") or self._usage
        self._queries |= queries_in(candidate for _, candidate in candidates_of(body))
        chunks = [{**fields, "choices": choices}] if choices else []
        if self._candidates and all(known.finished for known in self._candidates.values()):
            named: GeminiResponseFields = {
                name: fields[name] for name in ("id", "model", "object") if name in fields
            }
            if usage := usage_fields(self._usage):
                usage |= billed_searches(self._queries, str(named.get("model", "")))
                chunks.append({**named, "choices": [], "usage": usage})
        return chunks

    def _added(
        self, candidate: GeminiResponseFields, index: int, fields: GeminiResponseFields
    ) -> GeminiResponseFields:
        known = self._candidates.setdefault(index, CandidateState(index, fields.get("id", "")))
        return choice_of(candidate, known, "delta")
