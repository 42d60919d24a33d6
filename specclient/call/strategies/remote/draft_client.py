"""The draft model of remote verification: proposals, token ids and text from its completions endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specclient.call.strategies.context import StrategyContext
from specclient.errors import OpenAIError
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import PerCallOptions, Request

#: Fields of a request whose answer contains token ids.
_IDS: Mapping[str, Any] = {"return_token_ids": True}


class TargetFallbackError(Exception):
    """No further round is possible: the target decodes the answer alone."""


class DraftClient:
    """Requests to the draft model of one answer.

    The draft's server must accept token ids as a prompt and return those of its answers
    (``return_token_ids``), as our own engine, our own server and vLLM do. Every failure raises
    :class:`TargetFallbackError`.

    Args:
        context: of the answer.
        stop_ids: tokens that end a proposal, in addition to the draft's own.
    """

    def __init__(self, context: StrategyContext, stop_ids: Sequence[int] = ()) -> None:
        self._context = context
        self._stop: dict[str, Any] = {"stop_token_ids": list(stop_ids)} if stop_ids else {}

    async def propose(self, prefix_ids: Sequence[int], draft_length: int) -> tuple[tuple[int, ...], str]:
        """Return the draft's next tokens and their text; fewer than ``draft_length`` if its answer ends."""
        choice = await self._complete(list(prefix_ids), {**_IDS, **self._stop}, max_tokens=draft_length)
        ids = (choice.model_extra or {}).get("token_ids")
        if not isinstance(ids, list):
            raise TargetFallbackError(f"the draft {self._context.strategy.draft} returns no token_ids")
        if choice.finish_reason == "stop":
            ids = ids[:-1]  # the end token: only the target decides where the answer ends
        return tuple(ids), choice.text or ""

    async def tokenize(self, text: str, *, special_tokens: bool = True) -> tuple[int, ...]:
        """Return the token ids of a text, from the draft's tokenizer.

        Args:
            special_tokens: whether special tokens are added, often one at the beginning. Special tokens
                written in the text become tokens in any case.
        """
        body = _IDS if special_tokens else {**_IDS, "add_special_tokens": False}
        choice = await self._complete(text, body, max_tokens=1)
        ids = (choice.model_extra or {}).get("prompt_token_ids")
        if not isinstance(ids, list) or not ids:
            raise TargetFallbackError(f"the draft {self._context.strategy.draft} returns no prompt_token_ids")
        return tuple(ids)

    async def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, from the draft's tokenizer."""
        return str((await self._complete(list(ids), max_tokens=0, echo=True)).text)

    async def _complete(self, prompt: Any, body: Mapping[str, Any] | None = None, **params: Any) -> Any:
        """Return the first choice of a greedy completion; ``body`` is added to the request's body."""
        assert self._context.draft is not None
        own = self._context.request.options
        options = PerCallOptions(
            timeout=own.timeout,
            deadline_s=own.deadline_s,
            tags=own.tags,
            session=own.session,
            by_judge=own.by_judge,
        )
        if body:
            options = replace(options, body=body)
        draft = self._context.strategy.draft or ""
        params = {"prompt": prompt, "temperature": 0, **params}
        try:
            answer = await self._context.draft.complete(Request(COMPLETION, draft, params, options=options))
        except OpenAIError as error:
            raise TargetFallbackError(f"the draft {draft} failed ({type(error).__name__})") from None
        if not answer.choices:
            raise TargetFallbackError(f"the draft {draft} returned no choices")
        return answer.choices[0]
