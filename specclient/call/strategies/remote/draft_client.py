"""Turn what a round needs of the draft into completions of the server that serves it: tokens, ids, text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specclient.call.strategies.context import StrategyContext
from specclient.errors import OpenAIError
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import PerCallOptions, Request


class TargetFallbackError(Exception):
    """No round can follow: the answer can only be decoded by the target alone."""


class DraftClient:
    """The draft of one answer.

    Its server must take token ids as a prompt and tell those of its answers (``return_token_ids``), as our
    own engine and server and vLLM do. Whatever fails here raises :class:`TargetFallbackError`.
    """

    def __init__(self, table: StrategyContext) -> None:
        self._table = table

    async def propose(self, before: Sequence[int], depth: int) -> tuple[tuple[int, ...], str]:
        """Return the draft's next ``depth`` tokens and their text; fewer where it has less to say."""
        choice = (await self._ask(list(before), max_tokens=depth, tell=True)).choices[0]
        ids = (choice.model_extra or {}).get("token_ids")
        if not isinstance(ids, list):
            raise TargetFallbackError(f"the draft {self._table.strategy.draft} tells no token_ids")
        if choice.finish_reason == "stop":
            ids = ids[:-1]  # it ends the answer here: whether the target does is for the target to say
        return tuple(ids), choice.text or ""

    async def split(self, text: str) -> tuple[int, ...]:
        """Return a text's ids by the draft's tokenizer."""
        choice = (await self._ask(text, max_tokens=1, tell=True)).choices[0]
        ids = (choice.model_extra or {}).get("prompt_token_ids")
        if not isinstance(ids, list) or not ids:
            raise TargetFallbackError(f"the draft {self._table.strategy.draft} tells no prompt_token_ids")
        return tuple(ids)

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids by the draft's tokenizer."""
        return str((await self._ask(list(ids), max_tokens=0, echo=True)).choices[0].text)

    async def _ask(self, prompt: Any, *, tell: bool = False, **params: Any) -> Any:
        assert self._table.draft is not None
        own = self._table.request.options
        options = PerCallOptions(
            timeout=own.timeout, deadline_s=own.deadline_s, tags=own.tags, session=own.session
        )
        if tell:
            options = replace(options, body={"return_token_ids": True})
        asked = {"prompt": prompt, "temperature": 0, **params}
        draft = self._table.strategy.draft or ""
        try:
            answer = await self._table.draft.whole(Request(COMPLETION, draft, asked, options=options))
        except OpenAIError as error:
            raise TargetFallbackError(f"the draft {draft} failed ({type(error).__name__})") from None
        if not answer.choices:
            raise TargetFallbackError(f"the draft {draft} gave no choices")
        return answer
