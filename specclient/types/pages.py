"""Turn one answer of a list into a page: its items, and the way to the next one."""

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
    """What asks for a page: the client, sync or async."""

    def page(self, request: Request) -> Any:
        """Return the page a request asks for; of an async client, what gives it when awaited."""
        ...


@dataclass(frozen=True, slots=True)
class PageInfo:
    """What leads from a page to the next one.

    Attributes:
        params: to be added to the query.
    """

    params: Mapping[str, Any]


class BasePage(WireModel, Generic[T]):
    """What the pages of every kind have in common."""

    data: list[T] = Field(default_factory=list)

    _lister: Any = PrivateAttr(default=None)
    _request: Any = PrivateAttr(default=None)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        """Take a list for a page of it: some servers send it bare (Together's models)."""
        return {"data": body} if isinstance(body, list) else body

    @pydantic.field_validator("data", mode="before")
    @classmethod
    def _items(cls, data: Any) -> Any:
        return [] if data is None else data

    def attach(self, lister: PageFetcher, request: Request) -> Self:
        """Tell the page what it is the answer to, and whom to ask for the next one; return it."""
        self._lister = lister
        self._request = request
        return self

    def has_next_page(self) -> bool:
        """Tell whether there is a page after this one, as far as this one says."""
        if not self.data or getattr(self, "has_more", None) is False:
            return False
        return self.next_page_info() is not None

    def next_page_info(self) -> PageInfo | None:
        """Return what to ask for the next page, None after the last one."""
        return None

    def _next_request(self) -> Request:
        info = self.next_page_info()
        if info is None:
            raise RuntimeError(_NO_NEXT)
        options = self._request.options
        query = {**options.query, **info.params}
        found: Request = replace(self._request, options=replace(options, query=query))
        return found


class _SyncPageBase(BasePage[T]):
    """A page whose next one is asked for at once."""

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # over all items, as the OpenAI client's
        for page in self.iter_pages():
            yield from page.data

    def iter_pages(self) -> Iterator[Self]:
        """Return this page and those after it, each asked for when it is due."""
        page = self
        while True:
            yield page
            if not page.has_next_page():
                return
            page = page.get_next_page()

    def get_next_page(self) -> Self:
        """Ask for the next page.

        Raises:
            RuntimeError: after the last one.
        """
        found: Self = self._lister.page(self._next_request())
        return found


class _AsyncPageBase(BasePage[T]):
    """A page whose next one is awaited."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.iter_pages():
            for item in page.data:
                yield item

    async def iter_pages(self) -> AsyncIterator[Self]:
        """Return this page and those after it, each asked for when it is due."""
        page = self
        while True:
            yield page
            if not page.has_next_page():
                return
            page = await page.get_next_page()

    async def get_next_page(self) -> Self:
        """Ask for the next page.

        Raises:
            RuntimeError: after the last one.
        """
        found: Self = await self._lister.page(self._next_request())
        return found


class _SinglePage(BasePage[T]):
    """All there is: such a list comes in one piece."""

    object: str | None = None


class _CursorPage(BasePage[T]):
    """A page after which the id of its last item leads on."""

    has_more: bool | None = None

    def next_page_info(self) -> PageInfo | None:
        """Return what to ask for the next page, None after the last one."""
        last = getattr(self.data[-1], "id", None) if self.data else None
        return None if last is None else PageInfo({"after": last})


class _ConversationCursorPage(BasePage[T]):
    """A page after which its ``last_id`` leads on."""

    has_more: bool | None = None
    last_id: str | None = None

    def next_page_info(self) -> PageInfo | None:
        """Return what to ask for the next page, None after the last one."""
        return PageInfo({"after": self.last_id}) if self.last_id else None


class _NextFieldPage(BasePage[T]):
    has_more: bool | None = None
    next: str | None = None


class _NextCursorPage(_NextFieldPage[T]):
    """A page after which its ``next`` leads on, sent as ``after``."""

    def next_page_info(self) -> PageInfo | None:
        """Return what to ask for the next page, None after the last one."""
        return PageInfo({"after": self.next}) if self.next else None


class _TokenPage(_NextFieldPage[T]):
    """A page after which its ``next`` leads on, sent as ``page``."""

    def next_page_info(self) -> PageInfo | None:
        """Return what to ask for the next page, None after the last one."""
        return PageInfo({"page": self.next}) if self.next else None


class SyncPage(_SinglePage[T], _SyncPageBase[T]):
    """All there is of a list."""


class AsyncPage(_SinglePage[T], _AsyncPageBase[T]):
    """All there is of a list."""


class SyncCursorPage(_CursorPage[T], _SyncPageBase[T]):
    """A page of a list that goes on after an item's id."""


class AsyncCursorPage(_CursorPage[T], _AsyncPageBase[T]):
    """A page of a list that goes on after an item's id."""


class SyncConversationCursorPage(_ConversationCursorPage[T], _SyncPageBase[T]):
    """A page of a list that says which id to go on after."""


class AsyncConversationCursorPage(_ConversationCursorPage[T], _AsyncPageBase[T]):
    """A page of a list that says which id to go on after."""


class SyncNextCursorPage(_NextCursorPage[T], _SyncPageBase[T]):
    """A page of a list that hands out a cursor."""


class AsyncNextCursorPage(_NextCursorPage[T], _AsyncPageBase[T]):
    """A page of a list that hands out a cursor."""


class SyncTokenPage(_TokenPage[T], _SyncPageBase[T]):
    """A page of a list that hands out a token for the next page."""


class AsyncTokenPage(_TokenPage[T], _AsyncPageBase[T]):
    """A page of a list that hands out a token for the next page."""


@dataclass(frozen=True, slots=True)
class PageClasses:
    """How a list goes on: the class of its pages, for either client.

    Attributes:
        sync_page, async_page: to be parametrised with what they list: ``kind.sync_page[FileObject]``.
    """

    sync_page: Any
    async_page: Any


#: The kinds by the names that rows use.
PAGE_CLASSES: Final[Mapping[str, PageClasses]] = {
    "Page": PageClasses(SyncPage, AsyncPage),
    "CursorPage": PageClasses(SyncCursorPage, AsyncCursorPage),
    "ConversationCursorPage": PageClasses(SyncConversationCursorPage, AsyncConversationCursorPage),
    "NextCursorPage": PageClasses(SyncNextCursorPage, AsyncNextCursorPage),
    "TokenPage": PageClasses(SyncTokenPage, AsyncTokenPage),
}


class AsyncPaginator(Generic[T]):
    """What an async client's ``list`` returns: await it for the first page, or iterate over all items.

    Args:
        ask: asks for the first page.
    """

    def __init__(self, ask: Callable[[], Awaitable[Any]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, Any]:
        return self._ask().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in await self:
            yield item
