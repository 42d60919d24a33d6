"""Turn a request into what stands against verifying its answer exactly, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.call.strategies.context import StrategyContext, request_param
from specclient.call.strategies.remote.scoring_formats import SCORING_FORMATS
from specclient.types.request import Request

#: The API's own default of completions.
DEFAULT_MAX_TOKENS = 16
#: Parameters that do not change which token is likeliest, beside those that are read here.
_FREE = frozenset(
    {"prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "user", "stream_options",
     "return_token_ids"}
)  # fmt: skip
#: Values of others that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
}


def ineligibility(table: StrategyContext) -> tuple[str, str] | None:
    """Return what stands against verifying a draft over the wire, and the parameter; else None."""
    request = table.request
    if request.operation != "completion":
        return (
            "chats are rendered by the target's template, which is not known here: verify drafts with "
            "completions.create and the rendered prompt",
            "messages",
        )
    form = SCORING_FORMATS.get(str(table.capabilities.verification))
    if form is None or (table.endpoint is None and table.capabilities.verification in ("sglang", "tgi")):
        return f"{table.where} is not known to tell the log-probabilities of a prompt's tokens", "strategy"
    if table.draft is None:
        return "no draft is named: strategy=Strategy(kind='remote', draft='local/demo')", "strategy"
    if request_param(request, "temperature") != 0 and request_param(request, "top_k") != 1:
        return "only greedy answers can be verified exactly: pass temperature=0", "temperature"
    for name, value in (*request.params.items(), *request.options.body.items()):
        if name not in _FREE and value is not None and value not in _NEUTRAL.get(name, ()):
            return f"{name}={value!r} shapes answers in a way that scores do not tell", name
    limit = request_param(request, "max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        return f"max_tokens is {limit!r}; it must be a whole number, 1 or more", "max_tokens"
    if prompt_of(request) is None:
        return "it takes one prompt, as text or as token ids, not empty: make one call each", "prompt"
    return None


def prompt_of(request: Request) -> str | list[int] | None:
    """Return a request's prompt, text or ids; None where it is none, or several."""
    prompt = request_param(request, "prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return prompt
    return None
