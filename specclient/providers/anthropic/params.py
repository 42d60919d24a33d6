"""Conversion of OpenAI's chat parameters to the request body of Anthropic's Messages API.

https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specclient.providers.anthropic.messages import RefuseField, system_and_messages
from specclient.providers.encoding import decoded
from specclient.providers.endpoint import Endpoint
from specclient.providers.unsupported import is_requested, refuse_unsupported
from specclient.providers.validation import checked_params, expect_kind
from specclient.types.request import Request

#: Default of ``max_tokens``, which Anthropic requires, by prefix of the model's name; the first match wins.
#: For Claude it is the model's maximum, but at most 64,000 ("Models overview"). For models of other
#: vendors, which some gateways serve, the maximum is unknown.
DEFAULT_MAX_TOKENS = (
    ("claude-3-7", 32_000),
    ("claude-3-5", 8_192),
    ("claude-3", 4_096),
    ("claude-opus-4-1", 32_000),
    ("claude-opus-4-0", 32_000),
    ("claude-opus-4-2025", 32_000),
    ("claude-", 64_000),
    ("", 8_192),
)

#: ``thinking.budget_tokens`` for each ``reasoning_effort``, for models without adaptive thinking.
BUDGETS = {"minimal": 1_024, "low": 4_096, "medium": 10_240, "high": 24_576, "xhigh": 32_768, "max": 49_152}
SMALLEST_BUDGET = 1_024

#: ``output_config.effort`` for each ``reasoning_effort``. Only the lowest value differs.
_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
#: Models up to 4.5, which have no adaptive thinking ("Adaptive thinking", supported models).
_BUDGETED = re.compile(
    r"claude-(?:[23][-.]|instant|4-|(?:opus|sonnet|haiku)-4(?:[-.][015]|-20\d{6}|@|$)(?!\d))"
)

_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

#: Parameters that :func:`body_of` converts. Any other parameter with a non-default value is rejected.
_EXPRESSED = frozenset(
    {
        *(
            "messages",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "stop",
            "stream_options",
        ),
        *("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"),
        *("metadata", "user", "safety_identifier", "service_tier"),
    }
)
_INSTEAD = {
    "function_call": "'function_call' is 'tool_choice' now",
    "functions": "'functions' are 'tools' now",
    "n": "send one request for each answer",
    "prediction": "Anthropic's API has no predicted outputs",
    "prompt_cache_key": "set cache_control on message parts",
    "prompt_cache_options": "set cache_control on message parts",
    "prompt_cache_retention": "set cache_control on message parts",
    "web_search_options": "pass Anthropic's web search tool in 'tools'",
}


def body_of(request: Request, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """Return the body of ``POST /messages`` for a chat request.

    ``extra_body`` contains Anthropic's own fields (``thinking``, ``top_k``, ``speed``, …). They replace the
    fields of the same name, except that ``output_config`` is merged field by field.

    Raises:
        UnsupportedParameterError: Anthropic has no equivalent for a parameter, and it may not be dropped.
        BadRequestError: messages or tools are malformed.
    """
    params = checked_params(decoded(request.params))
    extra = {name: value for name, value in request.options.body.items() if name != "stream_options"}

    def refused(name: str, why: str) -> None:
        refuse_unsupported(request, endpoint, [name], why=why)

    unknown = [name for name, value in params.items() if name not in _EXPRESSED and is_requested(name, value)]
    refuse_unsupported(
        request, endpoint, unknown, why="; ".join(_INSTEAD[name] for name in unknown if name in _INSTEAD)
    )
    longest = extra.get("max_tokens", params.get("max_completion_tokens", params.get("max_tokens")))
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": default_max_tokens(model) if longest is None else longest,
    }
    if "messages" in params:
        body |= system_and_messages(params["messages"], refused)
    body |= _sampling(params, refused)
    body |= _tools(params, refused)
    body |= _about(params, refused)
    body |= _output(params, model, longest, refused)
    if request.stream:
        body["stream"] = True
    if isinstance(extra.get("output_config"), Mapping):
        extra["output_config"] = {**body.get("output_config", {}), **extra["output_config"]}
    return {**body, **extra}


def default_max_tokens(model: str) -> int:
    """Return the default of ``max_tokens`` for a model; see :data:`DEFAULT_MAX_TOKENS`."""
    name = model[max(model.find("claude-"), 0) :].replace("@", "-")  # a gateway may add a prefix
    return next(most for beginning, most in DEFAULT_MAX_TOKENS if name.startswith(beginning))


def _sampling(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    fields = {name: params[name] for name in ("temperature", "top_p") if name in params}
    temperature = fields.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 1:
        refused("temperature", f"it is {temperature}; Anthropic's range is 0 to 1")
        del fields["temperature"]
    if "stop" in params:
        stop = params["stop"]
        fields["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return fields


def _about(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    """Return the fields for the user id and the service tier."""
    fields: dict[str, Any] = {}
    metadata = dict(params.get("metadata") or {})
    user = metadata.pop("user_id", None) or params.get("safety_identifier") or params.get("user")
    if metadata:
        refused(
            "metadata", f"Anthropic takes only 'user_id', not {', '.join(metadata)}; use tags= for labels"
        )
    if user:
        fields["metadata"] = {"user_id": user}
    tier = params.get("service_tier")
    if tier in _TIERS:
        fields["service_tier"] = _TIERS[tier]
    elif tier is not None:
        refused("service_tier", f"it is {tier!r}; it must be 'auto' or 'default'")
    return fields


def _tools(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    converted = [_tool(tool, f"tools[{at}]", refused) for at, tool in enumerate(params.get("tools") or ())]
    tools = [tool for tool in converted if tool is not None]
    fields: dict[str, Any] = {"tools": tools} if tools else {}
    choice = _tool_choice(params["tool_choice"], refused) if "tool_choice" in params else None
    if params.get("parallel_tool_calls") is False and tools:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    return {**fields, "tool_choice": choice} if choice else fields


def _tool(tool: Any, where: str, refused: RefuseField) -> dict[str, Any] | None:
    """Convert a function to Anthropic's form. Anthropic's own tools (web search, …) are not changed."""
    expect_kind(tool, where, dict)
    if "custom" in tool:
        refused(where, "it is a custom tool; Anthropic takes functions and its own tools")
        return None
    if "function" not in tool:
        own: dict[str, Any] = tool
        return own
    function = tool["function"]
    expect_kind(function, f"{where}.function", dict)
    converted = {"name": function.get("name")}
    if function.get("description"):
        converted["description"] = function["description"]
    converted["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        converted["strict"] = function["strict"]
    control = tool.get("cache_control") or function.get("cache_control")
    return {**converted, "cache_control": control} if control else converted


def _tool_choice(choice: Any, refused: RefuseField) -> dict[str, Any] | None:
    if isinstance(choice, str) and choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "tool", "name": choice["function"].get("name")}
    if isinstance(choice, dict) and choice.get("type") in ("auto", "any", "tool", "none"):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else choice
    refused("tool_choice", f"{kind!r} has no equivalent; pass only the tools that may be called")
    return None


def _output(params: Mapping[str, Any], model: str, longest: Any, refused: RefuseField) -> dict[str, Any]:
    """Return the fields for thinking and for the response format."""
    fields: dict[str, Any] = {}
    config: dict[str, Any] = {}
    effort = params.get("reasoning_effort")
    if effort is not None:
        thinking, level = thinking_of(effort, model, longest, refused)
        fields = {"thinking": thinking} if thinking else {}
        config = {"effort": level} if level else {}
    form = params.get("response_format")
    if form is not None and form.get("type") != "text":
        schema = _schema(form, refused)
        if schema is not None:
            config["format"] = {"type": "json_schema", "schema": schema}
    return {**fields, "output_config": config} if config else fields


def thinking_of(
    effort: str, model: str, longest: int | None, refused: RefuseField
) -> tuple[dict[str, Any] | None, str | None]:
    """Return Claude's ``thinking`` and ``effort`` for a ``reasoning_effort``; None for a field not sent.

    Args:
        model: the model's name; a gateway or cloud may add a prefix.
        longest: the caller's limit of the answer in tokens; None for the default.
        refused: called for an effort that the model does not support.
    """
    if effort == "none":
        return {"type": "disabled"}, None
    if effort not in _EFFORTS:
        refused("reasoning_effort", f"it is {effort!r}; it must be one of none, {', '.join(_EFFORTS)}")
        return None, None
    if not _BUDGETED.search(model):
        return {"type": "adaptive"}, _EFFORTS[effort]
    budget = (longest or default_max_tokens(model)) // 2  # thinking tokens count towards max_tokens
    if budget >= SMALLEST_BUDGET:
        return {"type": "enabled", "budget_tokens": min(BUDGETS[effort], budget)}, None
    refused("reasoning_effort", f"{model} needs max_tokens of at least {2 * SMALLEST_BUDGET} to think")
    return None, None


def _schema(form: Any, refused: RefuseField) -> dict[str, Any] | None:
    value = form.get("json_schema") if form.get("type") == "json_schema" else None
    settings = value if isinstance(value, dict) else {}
    schema = settings.get("schema")
    if not isinstance(schema, dict):
        refused(
            "response_format", f"{form.get('type')!r} has no equivalent without a schema; use json_schema"
        )
        return None
    return {**({"description": settings["description"]} if settings.get("description") else {}), **schema}
