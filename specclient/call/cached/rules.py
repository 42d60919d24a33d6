"""Which calls the response cache may answer: reproducible ones, and random ones that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.types.request import Request

__all__ = ["CACHED_OPERATIONS", "is_cacheable", "is_random", "sent_params"]

#: The operations whose answers are kept.
CACHED_OPERATIONS = frozenset({"chat", "completion", "response", "embedding"})
#: Types of tools that the caller runs; the provider runs all others, with results that change.
_CALLER_TOOLS = frozenset({"function", "custom", "local_shell", "apply_patch"})


def sent_params(request: Request) -> dict[str, Any]:
    """Return the parameters of a request as its body has them: ``extra_body`` wins."""
    return {**request.params, **request.options.body}


def is_cacheable(request: Request) -> bool:
    """Return whether an answer depends on nothing but the request, and the call has no other effect.

    Not so for bodies and files that are sent unread, responses in the background, conversations that the
    provider keeps (the call adds to them), and stored prompts of a provider without a version, which may
    change.
    """
    if request.operation not in CACHED_OPERATIONS or request.content is not None or request.path_params:
        return False
    params = sent_params(request)
    if params.get("background") or params.get("conversation") is not None:
        return False
    prompt = params.get("prompt")
    return not (isinstance(prompt, Mapping) and request.operation == "response" and not prompt.get("version"))


def is_random(request: Request) -> bool:
    """Return whether another call with the same parameters may be answered differently.

    An embedding is not random. Of the others, a call is not random if it is greedy (``temperature``,
    or ``top_p``, is 0, or ``top_k`` is 1) or has a ``seed``: the parameters by which a caller asks for a
    reproducible answer. Without them the provider samples, also where a parameter is unset. A call with tools
    that the provider runs, such as a web search, is random in any case.
    """
    if request.operation == "embedding":
        return False
    params = sent_params(request)
    if params.get("web_search_options") is not None or any(map(_is_providers_tool, _tools(params))):
        return True
    if params.get("seed") is not None:
        return False
    return not (
        _is_number(params.get("temperature"), 0)
        or _is_number(params.get("top_p"), 0)
        or _is_number(params.get("top_k"), 1)
    )


def _tools(params: Mapping[str, Any]) -> list[Any]:
    tools = params.get("tools")
    return tools if isinstance(tools, list) else []


def _is_providers_tool(tool: object) -> bool:
    kind = tool.get("type") if isinstance(tool, Mapping) else getattr(tool, "type", None)
    return kind not in _CALLER_TOOLS


def _is_number(value: object, wanted: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == wanted
