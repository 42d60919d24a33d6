"""The field ``metadata`` of responses and conversations that are made or stored here."""

from __future__ import annotations

from typing import Any

from specclient.call.responses.refusals import invalid

__all__ = ["checked_metadata"]

#: Pairs, and characters of their names and values:
#: https://platform.openai.com/docs/api-reference/responses/create.
_MOST_METADATA, _LONGEST_NAME, _LONGEST_VALUE = 16, 64, 512


def checked_metadata(given: Any) -> dict[str, str]:
    """Return the metadata; empty for None.

    Raises:
        BadRequestError: it is no object of strings, or larger than OpenAI allows.
    """
    found = {} if given is None else given
    if not isinstance(found, dict) or len(found) > _MOST_METADATA:
        raise invalid("metadata", f"metadata must be an object of at most {_MOST_METADATA} strings")
    for name, value in found.items():
        if not isinstance(value, str) or len(name) > _LONGEST_NAME or len(value) > _LONGEST_VALUE:
            raise invalid(
                "metadata",
                f"metadata[{name[:40]!r}] must be a string of at most {_LONGEST_VALUE} characters, and its "
                f"name one of at most {_LONGEST_NAME}",
            )
    return found
