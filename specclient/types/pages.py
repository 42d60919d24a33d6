"""Pages of list methods: their items, and how to request the next page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import pydantic
from pydantic import Field, PrivateAttr

from specclient.types.base import WireModel
from specclient.types.request import Request

T = TypeVar("T")
_NO_NEXT = "No next page expected; please check `.has_next_page()` before calling `.get_next_page()`."


class PageFetcher(Protocol):
    """Fetches pages; a synchronous or asynchronous client."""

    def page(self, request: Request) -> Any:
        """Send a list request and return its page; an asynchronous client returns an awaitable."""
        ...


@dataclass(frozen=True, slots=True)
class PageInfo:
    """How the request of the next page differs from that of the current one.

    Attributes:
        params: query parameters to add.
    """

    params: Mapping[str, Any]


class BasePage(WireModel, Generic[T]):
    """The base class of all pages."""

    data: list[T] = Field(default_factory=list)

    _lister: Any = PrivateAttr(default=None)
    _request: Any = PrivateAttr(default=None)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        """Accept a bare list as a page: some servers send one, such as Together for its models."""
        return {"data": body} if isinstance(body, list) else body

    @pydantic.field_validator("data", mode="before")
    @classmethod
    def _items(cls, data: Any) -> Any:
        return [] if data is None else data

    def attach(self, lister: PageFetcher, request: Request) -> Self:
        """Set the page's request and the client that fetches the next page; return the page."""
        self._lister = lister
        self._request = request
        return self

    def has_next_page(self) -> bool:
        """Return whether there is a next page, according to the data of this one."""
        if not self.data or getattr(self, "has_more", None) is False:
            return False
        return self.next_page_info() is not None

    def next_page_info(self) -> PageInfo | None:
        """Return how to request the next page; None on the last page."""
        return None

    def _next_request(self) -> Request:
        info = self.next_page_info()
        if info is None:
            raise RuntimeError(_NO_NEXT)
        options = self._request.options
        query = {**options.query, **info.params}
        found: Request = replace(self._request, options=replace(options, query=query))
        return found


class SyncPageBase(BasePage[T]):
    """A page of the synchronous client."""

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # over the items of all pages, as in the OpenAI client
        for page in self.iter_pages():
            yield from page.data or ()

    def iter_pages(self) -> Iterator[Self]:
        """Iterate over this page and the following ones; each is requested when it is needed."""
        page = self
        while True:
            yield page
            if not page.has_next_page():
                return
            page = page.get_next_page()

    def get_next_page(self) -> Self:
        """Request the next page.

        Raises:
            RuntimeError: this is the last page.
        """
        found: Self = self._lister.page(self._next_request())
        return found


class AsyncPageBase(BasePage[T]):
    """A page of the asynchronous client."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.iter_pages():
            for item in page.data or ():
                yield item

    async def iter_pages(self) -> AsyncIterator[Self]:
        """Iterate over this page and the following ones; each is requested when it is needed."""
        page = self
        while True:
            yield page
            if not page.has_next_page():
                return
            page = await page.get_next_page()

    async def get_next_page(self) -> Self:
        """Request the next page.

        Raises:
            RuntimeError: this is the last page.
        """
        found: Self = await self._lister.page(self._next_request())
        return found


class _SinglePage(BasePage[T]):
    """A page with the complete list."""

    object: str | None = None


class _CursorPage(BasePage[T]):
    """A page whose cursor is the id of its last item."""

    has_more: bool | None = None

    def next_page_info(self) -> PageInfo | None:
        """Return how to request the next page; None on the last page."""
        last = getattr(self.data[-1], "id", None) if self.data else None
        return None if last is None else PageInfo({"after": last})


class _ConversationCursorPage(BasePage[T]):
    """A page whose cursor is its ``last_id``."""

    has_more: bool | None = None
    last_id: str | None = None

    def next_page_info(self) -> PageInfo | None:
        """Return how to request the next page; None on the last page."""
        return PageInfo({"after": self.last_id}) if self.last_id else None


class _NextFieldPage(BasePage[T]):
    has_more: bool | None = None
    next: str | None = None


class _NextCursorPage(_NextFieldPage[T]):
    """A page whose cursor is its ``next``, sent as ``after``."""

    def next_page_info(self) -> PageInfo | None:
        """Return how to request the next page; None on the last page."""
        return PageInfo({"after": self.next}) if self.next else None


class _TokenPage(_NextFieldPage[T]):
    """A page whose cursor is its ``next``, sent as ``page``."""

    def next_page_info(self) -> PageInfo | None:
        """Return how to request the next page; None on the last page."""
        return PageInfo({"page": self.next}) if self.next else None


class SyncPage(_SinglePage[T], SyncPageBase[T]):
    """A page with the complete list."""


class AsyncPage(_SinglePage[T], AsyncPageBase[T]):
    """A page with the complete list."""


class SyncCursorPage(_CursorPage[T], SyncPageBase[T]):
    """A page whose cursor is the id of its last item."""


class AsyncCursorPage(_CursorPage[T], AsyncPageBase[T]):
    """A page whose cursor is the id of its last item."""


class SyncConversationCursorPage(_ConversationCursorPage[T], SyncPageBase[T]):
    """A page with the id to continue after."""


class AsyncConversationCursorPage(_ConversationCursorPage[T], AsyncPageBase[T]):
    """A page with the id to continue after."""


class SyncNextCursorPage(_NextCursorPage[T], SyncPageBase[T]):
    """A page with a cursor for the next page."""


class AsyncNextCursorPage(_NextCursorPage[T], AsyncPageBase[T]):
    """A page with a cursor for the next page."""


class SyncTokenPage(_TokenPage[T], SyncPageBase[T]):
    """A page with a token for the next page."""


class AsyncTokenPage(_TokenPage[T], AsyncPageBase[T]):
    """A page with a token for the next page."""


@dataclass(frozen=True, slots=True)
class PageClasses:
    """The page classes of a kind of list, for both clients.

    Attributes:
        sync_page, async_page: generic classes of the item type: ``kind.sync_page[FileObject]``.
    """

    sync_page: Any
    async_page: Any


#: The page classes by the name of the kind, as used in the endpoint table.
PAGE_CLASSES: Final[Mapping[str, PageClasses]] = {
    "Page": PageClasses(SyncPage, AsyncPage),
    "CursorPage": PageClasses(SyncCursorPage, AsyncCursorPage),
    "ConversationCursorPage": PageClasses(SyncConversationCursorPage, AsyncConversationCursorPage),
    "NextCursorPage": PageClasses(SyncNextCursorPage, AsyncNextCursorPage),
    "TokenPage": PageClasses(SyncTokenPage, AsyncTokenPage),
}


class AsyncPaginator(Generic[T]):
    """The result of an asynchronous ``list``: await it for the first page, or iterate over all items.

    Args:
        ask: requests the first page.
    """

    def __init__(self, ask: Callable[[], Awaitable[Any]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, Any]:
        return self._ask().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in await self:
            yield item
