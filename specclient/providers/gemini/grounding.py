"""Searches of the web by which Gemini grounds an answer, counted as Google bills them.

https://ai.google.dev/gemini-api/docs/google-search: from Gemini 3 on each unique query counts, without empty
ones; before, a call counts once, however many queries it makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["billed_searches", "queries_in"]

_BY_CALL = re.compile(r"(?:models/)?gemini-[12]\.")
#: Queries of one answer that are counted at most.
_MOST = 1000


def queries_in(candidates: Iterable[Any]) -> set[str]:
    """Return the queries that the grounding metadata of candidates name."""
    found: set[str] = set()
    for candidate in candidates:
        grounding = candidate.get("groundingMetadata") if isinstance(candidate, Mapping) else None
        queries = grounding.get("webSearchQueries") if isinstance(grounding, Mapping) else None
        if isinstance(queries, list):
            found.update(query for query in queries[:_MOST] if isinstance(query, str) and query)
    return found


def billed_searches(queries: set[str], model: str) -> dict[str, Any]:
    """Return the field of a usage with the number of billed searches; an empty dict without any.

    Args:
        queries: the queries of an answer.
        model: the model that made it.
    """
    if not queries:
        return {}
    number = 1 if _BY_CALL.match(model) else len(queries)
    return {"server_tool_use": {"web_search_requests": number}}
