"""Type checks of a chat's parameters, before a dialect translates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.errors import BadRequestError

_WORDS: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
}

#: The allowed JSON types of the parameters that dialects read.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "max_completion_tokens": (int,),
    "max_tokens": (int,),
    "messages": (list,),
    "metadata": (dict,),
    "modalities": (list,),
    "parallel_tool_calls": (bool,),
    "reasoning_effort": (str,),
    "response_format": (dict,),
    "service_tier": (str,),
    "stop": (str, list),
    "temperature": (float, int),
    "tool_choice": (str, dict),
    "tools": (list,),
    "top_p": (float, int),
}


def checked_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return decoded parameters without those that are null.

    Raises:
        BadRequestError: a parameter has the wrong type. The message names it.
    """
    given = {name: value for name, value in params.items() if value is not None}
    for name, kinds in _KINDS.items():
        if name in given:
            expect_kind(given[name], name, *kinds)
    return given


def expect_kind(value: Any, where: str, *kinds: type) -> None:
    """Check the type of a decoded JSON value. As in JSON, true and false are not numbers.

    Args:
        value: the value.
        where: its name in the error message.
        kinds: the allowed types.

    Raises:
        BadRequestError: the type is not allowed.
    """
    if type(value) not in kinds:
        allowed = " or ".join(_WORDS[kind] for kind in kinds)
        raise BadRequestError(f"{where} is a {type(value).__name__}; it must be {allowed}")
