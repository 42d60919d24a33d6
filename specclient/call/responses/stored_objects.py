"""Access of calls to the stored responses and conversations: off the event loop, with the API's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from specclient.call.responses.items import Item
from specclient.call.responses.refusals import invalid, refusal
from specclient.errors import APIStatusError, InternalServerError, LedgerError, NotFoundError
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.stored.space import OversizeError
from specclient.stored.store import ItemPage, ObjectStore, StoredResponse

__all__ = ["StoredObjects", "not_found"]

T = TypeVar("T")

_UNREACHABLE = (
    "the database with the stored responses cannot be reached; try again later, or send the whole "
    "conversation as input"
)


def not_found(what: str, identity: str, hint: str = "") -> NotFoundError:
    """Return the error for an object that is not stored, or that belongs to another owner."""
    return refusal(NotFoundError, f"{what} with id {identity[:80]!r} not found.{hint}")


class StoredObjects:
    """The stored responses and conversations of a client.

    Every method but :meth:`write` raises InternalServerError, with status 503, if the database fails.

    Args:
        store: returns the store; None if nothing is stored.
    """

    def __init__(self, store: Callable[[], ObjectStore | None]) -> None:
        self._store = store

    @property
    def enabled(self) -> bool:
        """Whether responses and conversations are stored."""
        return self._store() is not None

    @property
    def why_nothing(self) -> str:
        """A hint for errors: why nothing is stored, if nothing is."""
        if self.enabled:
            return ""
        return (
            " Nothing is stored here, because the ledger is off, or stored.enabled is false: set ledger to a "
            "file or a database URL, or send the whole conversation as input."
        )

    async def write(self, use: Callable[[ObjectStore], None]) -> None:
        """Call ``use`` with the store, in a thread, even if the caller is cancelled.

        Raises:
            LedgerError: the database cannot be written.
            OversizeError: the limits are too small.
        """
        store = self._store()
        if store is not None:
            with cancel_shield():
                await run_in_thread(lambda: use(store))

    async def response(self, owner: str, identity: str) -> StoredResponse:
        """Return a response.

        Raises:
            NotFoundError: the owner has none with this id.
        """
        found = await self.work(lambda store: store.response(owner, identity))
        if found is None:
            raise not_found("Response", identity, self.why_nothing)
        return found

    async def conversation(self, owner: str, identity: str) -> dict[str, Any]:
        """Return a conversation without its items.

        Raises:
            NotFoundError: the owner has none with this id.
        """
        found = await self.work(lambda store: store.conversation(owner, identity))
        if found is None:
            raise not_found("Conversation", identity, self.why_nothing)
        return found

    async def all_items(self, owner: str, identity: str) -> list[Item]:
        """Return all items of a conversation, the oldest first.

        Raises:
            NotFoundError: the owner has no conversation with this id.
        """
        return (await self.page(owner, identity, None, None, newest_first=False)).items

    async def page(
        self, owner: str, identity: str, after: str | None, limit: int | None, *, newest_first: bool
    ) -> ItemPage:
        """Return a part of a conversation's items; see :meth:`ObjectStore.items`.

        Raises:
            NotFoundError: the owner has no conversation with this id, or it has no item ``after``.
        """
        try:
            found = await self.work(
                lambda store: store.items(
                    owner, identity, after=after, limit=limit, newest_first=newest_first
                )
            )
        except KeyError:
            raise not_found("Item", str(after)) from None
        if found is None:
            raise not_found("Conversation", identity, self.why_nothing)
        return found

    async def work(self, use: Callable[[ObjectStore], T]) -> T | None:
        """Return what ``use`` returns for the store, in a thread; None if nothing is stored.

        Raises:
            InternalServerError: the database failed.
            BadRequestError: an object is too large.
        """
        store = self._store()
        if store is None:
            return None
        try:
            return await run_in_thread(lambda: use(store))
        except LedgerError:
            failure: APIStatusError = refusal(InternalServerError, _UNREACHABLE, code="store_unavailable")
            failure.status_code = 503
        except OversizeError:
            failure = invalid("items", "the conversation is larger than the limits under [stored] allow")
        raise failure
