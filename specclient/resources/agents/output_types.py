"""Turn a Python type into the form that a hosted agent answers in, and its text back into the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.types.params import NotGiven, Omit


def output_decoder(output_type: Any) -> Any:
    """Return what reads a text as ``output_type``.

    Raises:
        TypeError: for what is neither a pydantic model nor a dataclass.
    """
    from specclient.structured.schema import decoder  # noqa: PLC0415  # only who parses pays for its import

    if isinstance(output_type, type):
        try:
            return decoder(output_type)
        except TypeError:
            pass  # said below, in the words of this helper
    raise TypeError(f"output_type is {output_type!r}; it must be a pydantic model or a dataclass")


def agent_text_format(output_type: type[Any]) -> dict[str, Any]:
    """Return the ``text.format`` by which an agent answers in the form of a type.

    Args:
        output_type: a pydantic model or a dataclass.

    Raises:
        TypeError: for any other type.
    """
    from specclient.structured.schema import text_format_param  # noqa: PLC0415  # as above

    output_decoder(output_type)
    return {"type": "json_schema", "schema": text_format_param(output_type)["schema"]}


def with_output_type(agent: Any, output_type: Any) -> Any:
    """Return the ``agent`` of a new session, told to answer in the form of ``output_type``, if that is one.

    Raises:
        ValueError: where the agent already names a format.
        TypeError: for a type that cannot be one.
    """
    if output_type is None:
        return agent
    configured = {} if isinstance(agent, NotGiven | Omit) else dict(agent)
    text: Mapping[str, Any] = configured.get("text") or {}
    if text.get("format") is not None:
        raise ValueError(
            "output_type and agent['text']['format'] cannot both be given; leave one of them out"
        )
    return {**configured, "text": {**text, "format": agent_text_format(output_type)}}
