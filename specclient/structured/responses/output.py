"""Turn the events about a streamed response's output items into the items so far, and the finished ones."""

from __future__ import annotations

from typing import Any

from specclient.structured.construction import recast
from specclient.types.responses.parsed_response import (
    ParsedResponseFunctionToolCall,
    ParsedResponseOutputMessage,
    ParsedResponseOutputText,
)

#: Calls that have no id of their own in some modes; the id of the call tells them apart.
_BY_CALL_ID = frozenset({"function_call", "custom_tool_call", "shell_call", "shell_call_output"})
OutputItemKey = tuple[str, str | None, str | None]


def identity(item: Any) -> OutputItemKey:
    """Return what an output item is known by throughout a stream: type, id and call id."""
    own = None if item.type in _BY_CALL_ID else getattr(item, "id", None)
    return item.type, own, getattr(item, "call_id", None)


def _may_follow(before: Any, after: Any) -> bool:
    """Tell whether ``after`` can be a later state of ``before``: the same id, or one that came later."""
    known = getattr(before, "id", None)
    return known == getattr(after, "id", None) or (
        known is None and before.type in ("function_call", "custom_tool_call")
    )


def growing(item: Any) -> Any:
    """Return an item as the parsed kind that can grow by deltas; one of another kind as it is."""
    if item.type == "function_call":
        return recast(item, ParsedResponseFunctionToolCall)
    if item.type == "message":
        return recast(
            item, ParsedResponseOutputMessage, content=[growing_part(part) for part in item.content or ()]
        )
    return item


def growing_part(part: Any) -> Any:
    """Return a part of a message's content as :func:`growing` does."""
    return recast(part, ParsedResponseOutputText) if part.type == "output_text" else part


class OutputState:
    """The output items of one response so far, by the index the API gives them, which may have gaps.

    Args:
        items: of the response as it was created: growing ones, in order.
    """

    def __init__(self, items: list[Any]) -> None:
        self._items: dict[int, Any] = dict(enumerate(items))
        self._done: dict[int, Any] = {}
        self._places: dict[OutputItemKey, int] = {}

    def item(self, index: int) -> Any:
        """Return the item at ``index``, as it has grown.

        Raises:
            RuntimeError: before it was added.
        """
        if index not in self._items:
            raise RuntimeError(
                f"Received a content event for output index {index} before receiving its output item"
            )
        return self._items[index]

    def add(self, index: int, item: Any) -> None:
        """Note an item that begins.

        Raises:
            RuntimeError: for an index that is taken.
        """
        if index in self._items:
            raise RuntimeError(f"Duplicate response output index {index}.")
        self._items[index] = item

    def finish(self, index: int, item: Any) -> None:
        """Note an item as it is when it is done.

        Raises:
            RuntimeError: where another item began at ``index``, or this one is done at another index.
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
        """Take over the later states of finished items from a response that is still at work.

        Raises:
            RuntimeError: where two items, or two states of one, contradict each other.
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
        """Compare what streamed with the output of the completed response.

        Raises:
            RuntimeError: where an item is another one there, or neither finished nor there.
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
        """Return the items that are done, in order: what a completed response without output had."""
        return [self._done[index] for index in sorted(self._done)]

    def so_far(self) -> list[Any]:
        """Return a copy of every item, as far as it came."""
        items = {**self._items, **self._done}
        return [items[index].model_copy(deep=True) for index in sorted(items)]
