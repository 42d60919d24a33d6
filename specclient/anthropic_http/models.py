"""The served models in Anthropic's form: https://platform.claude.com/docs/en/api/models/list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from specclient.openai_http.errors import bad_request, shown

__all__ = ["model_info", "model_page"]

_MOST = 1000
#: The time when a model was released is unknown.
_CREATED = "1970-01-01T00:00:00Z"


def model_info(name: str) -> dict[str, Any]:
    """Return a model."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _CREATED,
        "lifecycle": "active",
    }


def model_page(names: Sequence[str], query: str) -> dict[str, Any]:
    """Return a page of models.

    Args:
        names: the names of all models.
        query: the query string with ``limit``, ``after_id`` or ``before_id``.

    Raises:
        ServingError: 400, a parameter is invalid.
    """
    given = dict(parse_qsl(query))
    limit = _limit(given)
    after, before = given.get("after_id"), given.get("before_id")
    for name, value in (("after_id", after), ("before_id", before)):
        if value is not None and value not in names:
            raise bad_request(name, f"{name} is {shown(value)}; it must be the id of a listed model")
    if before is not None:
        rest = names[: names.index(before)]
        page = rest[-limit:]
    else:
        rest = names if after is None else names[names.index(after) + 1 :]
        page = rest[:limit]
    return {
        "data": [model_info(name) for name in page],
        "has_more": len(page) < len(rest),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _limit(given: Mapping[str, str]) -> int:
    limit = given.get("limit", str(_MOST))
    if limit.isascii() and limit.isdigit() and len(limit) <= 4 and 1 <= int(limit) <= _MOST:
        return int(limit)
    raise bad_request("limit", f"limit is {shown(limit)}; it must be an integer from 1 to {_MOST}")
