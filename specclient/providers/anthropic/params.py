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
    "n": "ask once for each answer",
    "prediction": "it exposes no speculation",
    "prompt_cache_key": "mark parts with cache_control",
    "prompt_cache_options": "mark parts with cache_control",
    "prompt_cache_retention": "mark parts with cache_control",
    "web_search_options": "name its own web search tool in 'tools'",
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
    name = model[max(model.find("claude-"), 0) :]  # a gateway may add a prefix
    return next(most for beginning, most in DEFAULT_MAX_TOKENS if name.startswith(beginning))


def _sampling(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    found = {name: params[name] for name in ("temperature", "top_p") if name in params}
    temperature = found.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 1:
        refused("temperature", f"it is {temperature}, and its range there is 0 to 1")
        del found["temperature"]
    if "stop" in params:
        stop = params["stop"]
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return found


def _about(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    """Return the fields for the user id and the service tier."""
    found: dict[str, Any] = {}
    metadata = dict(params.get("metadata") or {})
    user = metadata.pop("user_id", None) or params.get("safety_identifier") or params.get("user")
    if metadata:
        refused(
            "metadata", f"it keeps no labels but 'user_id', and there is {', '.join(metadata)}; use tags="
        )
    if user:
        found["metadata"] = {"user_id": user}
    tier = params.get("service_tier")
    if tier in _TIERS:
        found["service_tier"] = _TIERS[tier]
    elif tier is not None:
        refused("service_tier", f"it is {tier!r}, and there are 'auto' and 'default'")
    return found


def _tools(params: Mapping[str, Any], refused: RefuseField) -> dict[str, Any]:
    given = [_tool(tool, f"tools[{at}]", refused) for at, tool in enumerate(params.get("tools") or ())]
    tools = [tool for tool in given if tool is not None]
    found: dict[str, Any] = {"tools": tools} if tools else {}
    choice = _tool_choice(params["tool_choice"], refused) if "tool_choice" in params else None
    if params.get("parallel_tool_calls") is False and tools:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    return {**found, "tool_choice": choice} if choice else found


def _tool(tool: Any, where: str, refused: RefuseField) -> dict[str, Any] | None:
    """Convert a function to Anthropic's form. Anthropic's own tools (web search, …) are not changed."""
    expect_kind(tool, where, dict)
    if "custom" in tool:
        refused(where, "it is a custom tool, and there are functions and its own tools alone")
        return None
    if "function" not in tool:
        own: dict[str, Any] = tool
        return own
    function = tool["function"]
    expect_kind(function, f"{where}.function", dict)
    found = {"name": function.get("name")}
    if function.get("description"):
        found["description"] = function["description"]
    found["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        found["strict"] = function["strict"]
    control = tool.get("cache_control") or function.get("cache_control")
    return {**found, "cache_control": control} if control else found


def _tool_choice(choice: Any, refused: RefuseField) -> dict[str, Any] | None:
    if isinstance(choice, str) and choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "tool", "name": choice["function"].get("name")}
    if isinstance(choice, dict) and choice.get("type") in ("auto", "any", "tool", "none"):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else choice
    refused(
        "tool_choice", f"{kind!r} cannot be expressed there; give it those tools alone that may be called"
    )
    return None


def _output(params: Mapping[str, Any], model: str, longest: Any, refused: RefuseField) -> dict[str, Any]:
    """Return the fields for thinking and for the response format."""
    found: dict[str, Any] = {}
    config: dict[str, Any] = {}
    effort = params.get("reasoning_effort")
    if effort == "none":
        found["thinking"] = {"type": "disabled"}
    elif effort is not None and effort not in _EFFORTS:
        refused("reasoning_effort", f"it is {effort!r}, and there are none, {', '.join(_EFFORTS)}")
    elif effort is not None and not _BUDGETED.search(model):
        found["thinking"] = {"type": "adaptive"}
        config["effort"] = _EFFORTS[effort]
    elif effort is not None:
        most = (longest or default_max_tokens(model)) // 2  # thinking tokens count towards max_tokens
        if most >= SMALLEST_BUDGET:
            found["thinking"] = {"type": "enabled", "budget_tokens": min(BUDGETS[effort], most)}
        else:
            refused(
                "reasoning_effort", f"{model} thinks with max_tokens of {2 * SMALLEST_BUDGET} or more only"
            )
    form = params.get("response_format")
    if form is not None and form.get("type") != "text":
        schema = _schema(form, refused)
        if schema is not None:
            config["format"] = {"type": "json_schema", "schema": schema}
    return {**found, "output_config": config} if config else found


def _schema(form: Any, refused: RefuseField) -> dict[str, Any] | None:
    found = form.get("json_schema") if form.get("type") == "json_schema" else None
    asked = found if isinstance(found, dict) else {}
    schema = asked.get("schema")
    if not isinstance(schema, dict):
        refused(
            "response_format", f"{form.get('type')!r} without a schema is unknown there; give a json_schema"
        )
        return None
    return {**({"description": asked["description"]} if asked.get("description") else {}), **schema}
