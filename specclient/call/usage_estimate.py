"""The usage of a call whose answer reports none: our own token counts, marked as an estimate."""

from __future__ import annotations

from specclient import tokens
from specclient.routing.choose.task_classifier import summarize_prompt
from specclient.runtime.json_slices import is_large
from specclient.types.request import Request
from specclient.types.usage import Usage

__all__ = ["UsageEstimate"]

#: Bytes of a prompt whose tokens are counted in a thread.
_LONG_BYTES = 64 * 2**10


class UsageEstimate:
    """Counts the tokens of one call.

    Args:
        request: the request.
        model: the model that served it.
    """

    def __init__(self, request: Request, model: str) -> None:
        self._request, self._model = request, model
        self._prompt: int | None = None

    @property
    def is_long(self) -> bool:
        """Whether the prompt is too long to be counted on an event loop."""
        if summarize_prompt(self._request).size >= _LONG_BYTES:
            return True
        return is_large(list(self._request.params.values()))

    def count_prompt(self) -> int:
        """Return the tokens of the prompt; they are counted once."""
        if self._prompt is None:
            self._prompt = tokens.count_prompt(self._request, self._model).tokens
        return self._prompt

    def usage(self, answer: str, tier: str | None) -> Usage:
        """Return the usage.

        Args:
            answer: the answer's text.
            tier: the service tier that the answer names.
        """
        completion = tokens.count_text(answer, self._model).tokens
        return Usage(prompt=self.count_prompt(), completion=completion, estimated=True, traffic=tier)
