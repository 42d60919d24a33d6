"""Pages of a list of items: the parameters of a list method, and its answer.

https://platform.openai.com/docs/api-reference/responses/input-items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specclient.call.responses.included import checked_include, with_included
from specclient.call.responses.items import Item
from specclient.call.responses.refusals import invalid
from specclient.call.responses.stored_objects import not_found
from specclient.runtime.short_repr import short_repr

__all__ = ["ListQuery", "list_query"]

_LEAST, _USUAL, _MOST = 1, 20, 100


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The parameters of a list method.

    Attributes:
        limit: the maximum number of items.
        newest_first: the order.
        after: the id of the item before the first one; None for the start.
        included: the values of ``include``; see :mod:`specclient.call.responses.included`.
    """

    limit: int
    newest_first: bool
    after: str | None
    included: frozenset[str]

    def page_of(self, items: Sequence[Item]) -> dict[str, Any]:
        """Return the page of a complete list, which has the oldest item first.

        Raises:
            NotFoundError: the list has no item ``after``.
        """
        ordered = list(reversed(items)) if self.newest_first else list(items)
        start = 0
        if self.after is not None:
            places = [place for place, item in enumerate(ordered) if item["id"] == self.after]
            if not places:
                raise not_found("Item", self.after)
            start = places[0] + 1
        end = start + self.limit
        return self.page(ordered[start:end], has_more=len(ordered) > end)

    def page(self, items: Sequence[Item], *, has_more: bool) -> dict[str, Any]:
        """Return the answer with these items."""
        return {
            "object": "list",
            "data": [with_included(item, self.included) for item in items],
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": has_more,
        }


def list_query(params: Mapping[str, Any]) -> ListQuery:
    """Return the checked parameters of a list method.

    Args:
        params: as JSON, or as texts from a query.

    Raises:
        BadRequestError: one is invalid.
    """
    order = params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid(
            "order",
            f"Invalid value: {short_repr(order, 40)}. Supported values are: 'asc' and 'desc'.",
            "invalid_value",
        )
    after = params.get("after")
    if after is not None and not isinstance(after, str):
        raise invalid("after", "after must be the id of an item")
    return ListQuery(
        _limit(params.get("limit", _USUAL)),
        order == "desc",
        after,
        checked_include(params.get("include", [])),
    )


def _limit(given: Any) -> int:
    try:
        limit = int(given)
    except (TypeError, ValueError):
        raise invalid(
            "limit", f"limit is {short_repr(given, 40)}; it must be a whole number", "invalid_type"
        ) from None
    if not _LEAST <= limit <= _MOST:
        what = "above maximum" if limit > _MOST else "below minimum"
        sign, bound = ("<=", _MOST) if limit > _MOST else (">=", _LEAST)
        message = f"Invalid 'limit': integer {what} value. Expected a value {sign} {bound}, but got {limit}."
        raise invalid("limit", message, f"integer_{what.replace(' ', '_')}_value")
    return limit
