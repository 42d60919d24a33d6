"""The limit of an answer that a hard budget has reserved, as a parameter of the call.

The call is sent with it, so that its answer cannot be longer than what is reserved. Chat completions get it
as ``max_tokens``, which every provider and server knows, and OpenAI's reasoning models, which refuse that, as
``max_completion_tokens``. The dialects of Anthropic and Gemini give it their own name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specclient.budgets.answers import LIMITS, is_limit
from specclient.budgets.media import count_of
from specclient.runtime.replaced import replaced
from specclient.types.request import NativeRequest, Request

__all__ = ["limited_request"]

#: OpenAI's models that refuse ``max_tokens`` (API reference, "Create chat completion"), at any provider.
_REASONING = re.compile(r"(?:gpt-(?:[5-9]|\d\d)|o\d|codex-)")
#: Gemini's object of settings and the limit in it, which may also be in snake case.
_SETTINGS, _GEMINI_LIMIT = ("generationConfig", "generation_config"), "maxOutputTokens"


def limited_request(request: Request, limit: int | None, model: str) -> Request:
    """Return a request whose answers are limited; the same one if nothing changes.

    Values that servers read as "no limit" (0, -1, null) are removed, so that they cannot override the limit
    under another name.

    Args:
        request: the request for which a budget has reserved the cost.
        limit: tokens of an answer; None if the request already limits its answers.
        model: the model's name at its provider.
    """
    operation, options = request.operation, request.options
    if operation not in LIMITS:
        return request
    least = 0 if operation == "completion" else 1
    params, body = _without_idle(request.params, least), _without_idle(options.body, least)
    if limit is not None:
        params = {**params, _parameter(operation, model): limit}
    if params is request.params and body is options.body:
        return request
    written = options.native
    if written is not None and written.translation is request.params:
        written = replace(written, body=_native_body(written, limit, least), translation=params)
    return replaced(request, params=params, options=replaced(options, body=body, native=written))


def _parameter(operation: str, model: str) -> str:
    if operation != "chat":
        return LIMITS[operation][0]
    reasons = _REASONING.match(model.rpartition("/")[2])
    return "max_completion_tokens" if reasons else "max_tokens"


def _without_idle(fields: Mapping[str, Any], least: int) -> Mapping[str, Any]:
    """Return the fields without limits that mean "no limit"; the same object if nothing is removed."""
    idle = [name for name in fields if is_limit(name) and _is_idle(fields[name], least)]
    return {name: value for name, value in fields.items() if name not in idle} if idle else fields


def _is_idle(value: Any, least: int) -> bool:
    count = count_of(value)
    return count is None or count < least


def _native_body(written: NativeRequest, limit: int | None, least: int) -> Mapping[str, Any]:
    """Return the body in the provider's own format, with the limit in the field of that format."""
    body = _without_idle(written.body, least)
    if written.dialect != "gemini":
        return body if limit is None else {**body, "max_tokens": limit}
    name = next((name for name in _SETTINGS if isinstance(body.get(name), Mapping)), _SETTINGS[0])
    settings = _without_idle(body.get(name) or {}, least)
    if limit is not None:
        settings = {**settings, _GEMINI_LIMIT: limit}
    return {**body, name: settings} if settings else body
