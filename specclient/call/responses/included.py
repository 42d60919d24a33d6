"""The parameter ``include`` of the Responses API: data that is omitted unless it is requested.

Values: https://platform.openai.com/docs/api-reference/responses/create#responses_create-include.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.call.responses.refusals import invalid

__all__ = ["LOGPROBS", "checked_include", "with_included"]

LOGPROBS = "message.output_text.logprobs"
_IMAGES = "message.input_image.image_url"
#: Allowed values. A value whose data the item lacks has no effect.
_INCLUDED = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        _IMAGES,
        LOGPROBS,
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)


def checked_include(given: object) -> frozenset[str]:
    """Return the values of ``include``.

    Raises:
        BadRequestError: it is no list of allowed values.
    """
    values = [given] if isinstance(given, str) else given
    if not isinstance(values, list | tuple):
        raise invalid("include", "include must be an array")
    if not all(isinstance(value, str) and value in _INCLUDED for value in values):
        raise invalid("include", f"include has an unsupported value; allowed: {', '.join(sorted(_INCLUDED))}")
    return frozenset(values)


def with_included(item: Mapping[str, Any], included: frozenset[str]) -> dict[str, Any]:
    """Return an item as it is listed: log-probabilities and the URLs of images only if they are included."""
    parts = item.get("content")
    if item.get("type") != "message" or not isinstance(parts, list):
        return dict(item)
    return {**item, "content": [_part_with_included(part, included) for part in parts]}


def _part_with_included(part: Any, included: frozenset[str]) -> Any:
    if not isinstance(part, Mapping):
        return part
    hidden: dict[str, Any] = {}
    if part.get("logprobs") and LOGPROBS not in included:
        hidden["logprobs"] = []
    if part.get("image_url") and _IMAGES not in included:
        hidden["image_url"] = None
    return {**part, **hidden} if hidden else part
