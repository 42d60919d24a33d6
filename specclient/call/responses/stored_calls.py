"""Calls of stored objects: ``responses`` by their ids, and ``conversations``.

They are answered as OpenAI's API does: https://platform.openai.com/docs/api-reference/responses and
https://platform.openai.com/docs/api-reference/conversations.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Self

from specclient.call.large_values import run_on_value
from specclient.call.responses.events import replayed_events
from specclient.call.responses.ids import new_id
from specclient.call.responses.included import checked_include, with_included
from specclient.call.responses.items import Item, stored_items
from specclient.call.responses.list_page import ListQuery, list_query
from specclient.call.responses.metadata import checked_metadata
from specclient.call.responses.refusals import invalid
from specclient.call.responses.stored_objects import StoredObjects, not_found
from specclient.providers.encoding import decoded
from specclient.runtime.short_repr import short_repr
from specclient.types.request import Request

__all__ = ["StoredCalls"]

#: Items in one request: https://platform.openai.com/docs/api-reference/conversations/create.
_MOST_ITEMS = 20

Answer = dict[str, Any]
Method = Callable[["_Call"], Awaitable[Answer]]


class _Call:
    """One call: its arguments by name, and the owner of the objects that it reads."""

    def __init__(self, request: Request, params: dict[str, Any]) -> None:
        self.owner = request.options.owner
        self.ids = request.path_params
        self.params = params

    @classmethod
    async def of(cls, request: Request) -> Self:
        """Return the call that a request makes.

        Raises:
            BadRequestError: an argument has no JSON form.
        """
        options = request.options
        merged = {**request.params, **options.query, **options.body}  # pages are requested by the query
        given = {name: value for name, value in merged.items() if value is not None}
        return cls(request, await run_on_value(given, lambda: decoded(given)))

    @property
    def response(self) -> str:
        return self.ids["response_id"]

    @property
    def conversation(self) -> str:
        return self.ids["conversation_id"]


class StoredCalls:
    """Answers the calls of :data:`specclient.call.stored_methods.STORED_METHODS`.

    Args:
        objects: the stored responses and conversations.
    """

    def __init__(self, objects: StoredObjects) -> None:
        self._objects = objects
        self._methods: Mapping[str, Method] = {
            "responses.cancel": self._cancel,
            "responses.delete": self._delete_response,
            "responses.input_items.list": self._input_items,
            "responses.retrieve": self._retrieve_response,
            "conversations.create": self._create,
            "conversations.delete": self._delete,
            "conversations.items.create": self._create_items,
            "conversations.items.delete": self._delete_item,
            "conversations.items.list": self._items,
            "conversations.items.retrieve": self._item,
            "conversations.retrieve": self._retrieve,
            "conversations.update": self._update,
        }

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a call as JSON.

        Raises:
            NotFoundError: the object is not stored, or belongs to another owner.
            BadRequestError: an argument is invalid.
            InternalServerError: the database failed.
        """
        return await self._methods[request.method.name](await _Call.of(request))

    async def events(self, request: Request) -> Iterator[Answer]:
        """Return the events of ``responses.retrieve`` with ``stream=True``; see :meth:`answer`."""
        call = await _Call.of(request)
        checked_include(call.params.get("include", []))
        after = _number(call.params.get("starting_after", -1), "starting_after")
        kept = await self._objects.response(call.owner, call.response)
        replayed = replayed_events(kept.response, kept.deltas)
        return (event for event in replayed if event["sequence_number"] > after)

    # Responses

    async def _retrieve_response(self, call: _Call) -> Answer:
        checked_include(call.params.get("include", []))
        return dict((await self._objects.response(call.owner, call.response)).response)

    async def _delete_response(self, call: _Call) -> Answer:
        if not await self._objects.work(lambda store: store.delete(call.owner, call.response)):
            raise not_found("Response", call.response, self._objects.why_nothing)
        return {"id": call.response, "object": "response", "deleted": True}

    async def _cancel(self, call: _Call) -> Answer:
        await self._objects.response(call.owner, call.response)
        raise invalid(
            "response_id", "Cannot cancel a synchronous response; responses made here never run in background"
        )

    async def _input_items(self, call: _Call) -> Answer:
        query = list_query(call.params)
        kept = await self._objects.response(call.owner, call.response)
        return query.page_of(list(kept.input))

    # Conversations

    async def _create(self, call: _Call) -> Answer:
        items = _given_items(call.params.get("items") or [])
        made = {
            "id": new_id("conv"),
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": checked_metadata(call.params.get("metadata")),
        }
        if not self._objects.enabled:
            raise invalid("conversation", f"A conversation cannot be stored.{self._objects.why_nothing}")
        await self._objects.work(lambda store: store.add_conversation(call.owner, made, items))
        return made

    async def _retrieve(self, call: _Call) -> Answer:
        return await self._objects.conversation(call.owner, call.conversation)

    async def _update(self, call: _Call) -> Answer:
        metadata = checked_metadata(call.params.get("metadata"))
        found = await self._objects.work(
            lambda store: store.update_conversation(call.owner, call.conversation, metadata)
        )
        if found is None:
            raise not_found("Conversation", call.conversation, self._objects.why_nothing)
        return found

    async def _delete(self, call: _Call) -> Answer:
        if not await self._objects.work(lambda store: store.delete(call.owner, call.conversation)):
            raise not_found("Conversation", call.conversation, self._objects.why_nothing)
        return {"id": call.conversation, "object": "conversation.deleted", "deleted": True}

    # Items of conversations

    async def _create_items(self, call: _Call) -> Answer:
        query = list_query({"include": call.params.get("include", [])})
        items = _given_items(call.params.get("items"))
        added = await self._objects.work(lambda store: store.append(call.owner, call.conversation, items))
        if added is None:
            raise not_found("Conversation", call.conversation, self._objects.why_nothing)
        return query.page(added, has_more=False)

    async def _items(self, call: _Call) -> Answer:
        query: ListQuery = list_query(call.params)
        found = await self._objects.page(
            call.owner, call.conversation, query.after, query.limit, newest_first=query.newest_first
        )
        return query.page(found.items, has_more=found.has_more)

    async def _item(self, call: _Call) -> Answer:
        included = checked_include(call.params.get("include", []))
        item = call.ids["item_id"]
        await self._objects.conversation(call.owner, call.conversation)
        found = await self._objects.work(lambda store: store.item(call.owner, call.conversation, item))
        if found is None:
            raise not_found("Item", item)
        return with_included(found, included)

    async def _delete_item(self, call: _Call) -> Answer:
        conversation, item = (
            await self._objects.conversation(call.owner, call.conversation),
            call.ids["item_id"],
        )
        if not await self._objects.work(lambda store: store.delete_item(call.owner, call.conversation, item)):
            raise not_found("Item", item)
        return conversation


def _given_items(given: Any) -> list[Item]:
    items = stored_items(given if isinstance(given, list) else None, name="items")
    if len(items) > _MOST_ITEMS:
        raise invalid("items", f"items has {len(items)} items; it may have at most {_MOST_ITEMS} at a time")
    return items


def _number(given: Any, name: str) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):
        raise invalid(name, f"{name} is {short_repr(given, 40)}; it must be a whole number") from None
