"""Structured outputs of hosted agents: the output format of a Python type, and the decoder of its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.types.params import is_given


def output_decoder(output_type: Any) -> Any:
    """Return a function that parses text as ``output_type``.

    Raises:
        TypeError: ``output_type`` is neither a pydantic model nor a dataclass.
    """
    from specclient.structured.schema import decoder  # noqa: PLC0415  # slow to import, and rarely needed

    if isinstance(output_type, type):
        try:
            return decoder(output_type)
        except TypeError:
            pass  # raised below with a message for this helper
    raise TypeError(f"output_type is {output_type!r}; it must be a pydantic model or a dataclass")


def agent_text_format(output_type: type[Any]) -> dict[str, Any]:
    """Return the ``text.format`` that makes an agent answer with JSON of a type.

    Args:
        output_type: a pydantic model or a dataclass.

    Raises:
        TypeError: any other type.
    """
    from specclient.structured.schema import text_format_param  # noqa: PLC0415  # as above

    output_decoder(output_type)
    return {"type": "json_schema", "schema": text_format_param(output_type)["schema"]}


def with_output_type(agent: Any, output_type: Any) -> Any:
    """Return the ``agent`` of a new session with the output format of ``output_type``; unchanged for None.

    Raises:
        ValueError: the agent already has an output format.
        TypeError: ``output_type`` is neither a pydantic model nor a dataclass.
    """
    if output_type is None:
        return agent
    configured = dict(agent) if is_given(agent) else {}
    text: Mapping[str, Any] = configured.get("text") or {}
    if text.get("format") is not None:
        raise ValueError(
            "output_type and agent['text']['format'] cannot both be given; leave one of them out"
        )
    return {**configured, "text": {**text, "format": agent_text_format(output_type)}}
