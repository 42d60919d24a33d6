"""An answer that the target decodes anew and alone after some of its text has been shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.remote.scoring import unverifiable_answer
from specclient.types.usage import CompletionUsage


class TargetAnswer:
    """One answer that the target decodes from its beginning.

    Args:
        note_target: called with each answer or chunk of the target.
        shown: the text that has been shown already.

    Attributes:
        ids: the tokens so far, where the target reports them.
        usage: the token counts that the target reports; None until then.
        finish_reason: why the answer ended; None while it goes on.
    """

    def __init__(self, context: StrategyContext, note_target: Callable[[Any], None], shown: str) -> None:
        self._context = context
        self._note_target = note_target
        self._shown = shown
        self.ids: list[int] = []
        self.usage: CompletionUsage | None = None
        self.finish_reason: str | None = None

    async def texts(self) -> AsyncGenerator[str, None]:
        """Have the target decode the answer, and yield the text that was not shown yet."""
        request, target, text = self._context.request, self._context.target, ""
        if not request.stream:
            text = self._note(await target.complete(request))
            yield self._not_shown(text)
            return
        async with await target.stream(request) as chunks:
            async for chunk in chunks:
                text += self._note(chunk)
                new = self._not_shown(text)
                self._shown += new
                yield new

    def _note(self, answer: Any) -> str:
        """Note the answer, or a chunk of it; return its text."""
        self._note_target(answer)
        self.usage = answer.usage or self.usage
        text = ""
        for choice in answer.choices:
            text += _text(choice)
            self.ids.extend((choice.model_extra or {}).get("token_ids") or ())
            self.finish_reason = choice.finish_reason or self.finish_reason
        return text

    def _not_shown(self, text: str) -> str:
        if not (text.startswith(self._shown) or self._shown.startswith(text)):
            raise unverifiable_answer("decoded a second time, the answer differs")
        return text[len(self._shown) :]


def _text(choice: Any) -> str:
    """Return the text of a choice of a completion or a chat, complete or of a chunk.

    Raises:
        APIResponseValidationError: it has tool calls, which the text that was shown already had as text.
    """
    message = getattr(choice, "message", None) or getattr(choice, "delta", None)
    if message is None:
        return str(choice.text or "")
    if message.tool_calls:
        raise unverifiable_answer("decoded a second time, the answer has tool calls")
    return str(message.content or "")
