"""Checks whether a request can be verified exactly, token by token, by strategy ``remote``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.call.request_params import request_param
from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.remote.scoring_formats import SCORING_FORMATS
from specclient.runtime.short_repr import short_repr
from specclient.types.request import Request

#: Parameters that do not change the most likely token, or that the strategy handles itself.
_ALLOWED = frozenset(
    {"prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "user", "stream_options",
     "return_token_ids"}
)  # fmt: skip
#: The same for chats, whose prompts are rendered here.
_CHAT_ALLOWED = _ALLOWED - {"prompt"} | {
    "messages", "max_completion_tokens", "tools", "chat_template_kwargs", "store", "metadata",
    "safety_identifier", "prompt_cache_key",
}  # fmt: skip
#: Values of other parameters that have no effect.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
}
_CHAT_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
}
#: Formats that an engine in this process does not support: servers have a route of their own for them.
_SERVER_ONLY = ("sglang", "tgi")


def ineligibility(context: StrategyContext) -> tuple[str, str] | None:
    """Return why a draft cannot be verified remotely, and the parameter's name; None where it can."""
    request, verification = context.request, context.capabilities.verification
    is_chat = request.operation == "chat"
    if is_chat and context.template is None:
        return _unknown_template(context), "messages"
    if str(verification) not in SCORING_FORMATS or (
        context.endpoint is None and verification in _SERVER_ONLY
    ):
        return (
            f"{context.target_label} is not known to return the log-probabilities of a prompt's tokens",
            "strategy",
        )
    if context.draft is None:
        return "no draft is named: strategy=Strategy(kind='remote', draft='local/demo')", "strategy"
    if request_param(request, "temperature") != 0 and request_param(request, "top_k") != 1:
        return "only greedy answers can be verified exactly: pass temperature=0", "temperature"
    allowed, neutral = (_CHAT_ALLOWED, _CHAT_NEUTRAL) if is_chat else (_ALLOWED, _NEUTRAL)
    for name, value in (*request.params.items(), *request.options.body.items()):
        if name not in allowed and value is not None and value not in neutral.get(name, ()):
            return f"{name}={short_repr(value)} changes answers in a way that scores do not show", name
    for name in ("max_tokens", "max_completion_tokens"):
        limit = request_param(request, name)
        if limit is not None and (type(limit) is not int or limit < 1):
            return f"{name} is {short_repr(limit)}; it must be a whole number, 1 or more", name
    if not is_chat and prompt_of(request) is None:
        return "it takes one non-empty prompt, as text or token ids: make one call for each prompt", "prompt"
    return None


def _unknown_template(context: StrategyContext) -> str:
    """Return why a chat cannot be rendered, and what to do."""
    if context.endpoint is None:
        return "an engine in this process renders its chats and drafts without this strategy"
    name = context.endpoint.name
    return (
        f"the chat template of {context.model!r} at {context.target_label} is not known here: set template "
        f"under [providers.{name}] to its checkpoint's folder or hub id, or to a file with the template; or "
        "pass the rendered prompt to completions.create"
    )


def prompt_of(request: Request) -> str | list[int] | None:
    """Return a request's prompt as text or token ids; None where it is empty, or there are several."""
    prompt = request_param(request, "prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return prompt
    return None
