"""State of the output items of a streamed response."""

from __future__ import annotations

from typing import Any

from specclient.structured.construction import recast
from specclient.types.responses.parsed_response import (
    ParsedResponseFunctionToolCall,
    ParsedResponseOutputMessage,
    ParsedResponseOutputText,
)

#: Types of items that have no ``id`` in some modes. They are identified by their ``call_id``.
_BY_CALL_ID = frozenset({"function_call", "custom_tool_call", "shell_call", "shell_call_output"})
OutputItemKey = tuple[str, str | None, str | None]


def identity(item: Any) -> OutputItemKey:
    """Return the key that identifies an output item in a stream: its type, id and call id."""
    own = None if item.type in _BY_CALL_ID else getattr(item, "id", None)
    return item.type, own, getattr(item, "call_id", None)


def _may_follow(before: Any, after: Any) -> bool:
    """Return whether ``after`` can be a later state of ``before``: the id is equal, or was added later."""
    known = getattr(before, "id", None)
    return known == getattr(after, "id", None) or (
        known is None and before.type in ("function_call", "custom_tool_call")
    )


def growing(item: Any) -> Any:
    """Convert a message or function call to its parsed type, to which deltas can be added.

    Items of other types are returned unchanged.
    """
    if item.type == "function_call":
        return recast(item, ParsedResponseFunctionToolCall)
    if item.type == "message":
        return recast(
            item, ParsedResponseOutputMessage, content=[growing_part(part) for part in item.content or ()]
        )
    return item


def growing_part(part: Any) -> Any:
    """Convert a text part of a message's content to its parsed type. Other parts are returned unchanged."""
    return recast(part, ParsedResponseOutputText) if part.type == "output_text" else part


class OutputState:
    """The output items of one response so far, by the API's index. Indexes may have gaps.

    Args:
        items: the items of the response in its ``response.created`` event, converted by :func:`growing`.
    """

    def __init__(self, items: list[Any]) -> None:
        self._items: dict[int, Any] = dict(enumerate(items))
        self._done: dict[int, Any] = {}
        self._places: dict[OutputItemKey, int] = {}

    def item(self, index: int) -> Any:
        """Return the item at ``index``, as received so far.

        Raises:
            RuntimeError: there is no item at ``index`` yet.
        """
        if index not in self._items:
            raise RuntimeError(
                f"Received a content event for output index {index} before receiving its output item"
            )
        return self._items[index]

    def add(self, index: int, item: Any) -> None:
        """Add a new item.

        Raises:
            RuntimeError: there is already an item at ``index``.
        """
        if index in self._items:
            raise RuntimeError(f"Duplicate response output index {index}.")
        self._items[index] = item

    def finish(self, index: int, item: Any) -> None:
        """Record a finished item.

        Raises:
            RuntimeError: a different item was added at ``index``, or this one was finished at another index.
        """
        begun = self._items.get(index)
        if begun is not None and not (identity(begun) == identity(item) and _may_follow(begun, item)):
            raise RuntimeError(f"Completed output item identity changed at output index {index}.")
        if self._places.get(identity(item), index) != index:
            raise RuntimeError("Response snapshot has conflicting output identities.")
        if index in self._done:
            del self._places[identity(self._done[index])]
        self._done[index] = item
        self._places[identity(item)] = index

    def replace(self, items: list[Any]) -> None:
        """Replace finished items by their later states in an unfinished response.

        Raises:
            RuntimeError: two items have the same identity, or the identity of an item has changed.
        """
        if len({identity(item) for item in items}) != len(items):
            raise RuntimeError("Response snapshot has conflicting output identities.")
        for item in items:
            index = self._places.get(identity(item))
            if index is None:
                continue
            if not _may_follow(self._done[index], item):
                raise RuntimeError("Response snapshot has conflicting output identities.")
            self._done[index] = item.model_copy(deep=True)

    def check_final(self, items: list[Any]) -> None:
        """Compare the streamed items with the output of the completed response.

        Raises:
            RuntimeError: the identity of an item has changed, or an unfinished item is missing there.
        """
        final = {identity(item): item for item in items}
        for item in self._done.values():
            other = final.get(identity(item))
            if other is not None and not _may_follow(item, other):
                raise RuntimeError("Completed response output identity changed.")
        for index, item in self._items.items():
            other = final.get(identity(item))
            if index not in self._done and (other is None or not _may_follow(item, other)):
                raise RuntimeError("Cannot complete response with unfinished output items.")

    def finished(self) -> list[Any]:
        """Return the finished items in order: the output of a completed response sent without one."""
        return [self._done[index] for index in sorted(self._done)]

    def so_far(self) -> list[Any]:
        """Return copies of all items, finished or not, in order."""
        items = {**self._items, **self._done}
        return [items[index].model_copy(deep=True) for index in sorted(items)]
