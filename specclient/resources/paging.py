"""Pages of list methods: sends a list request and returns its first page, which can fetch the next."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from specclient.types.api_method import ApiMethod
from specclient.types.as_sent import as_sent
from specclient.types.named import named
from specclient.types.pages import AsyncPaginator, PageFetcher
from specclient.types.request import Request


class PageCaller(Protocol):
    """The method of a caller that paging needs."""

    def call(self, request: Request, into: Callable[[Any], Any] | None = None) -> Any:
        """Send a request and return the result; see :class:`specclient.resources.base.ResourceCaller`."""
        ...


def sync_page(caller: PageCaller, lister: PageFetcher, request: Request) -> Any:
    """Send a list request and return its page, as the caller returns its results.

    Args:
        lister: fetches the following pages.
    """
    page_request = replace(request, method=_paged(request.method, is_async=False))
    return caller.call(page_request, _attaching(lister, request))


def async_page(caller: PageCaller, lister: PageFetcher, request: Request) -> AsyncPaginator[Any]:
    """Return an awaitable paginator for a list request; see :func:`sync_page`."""
    page_request = replace(request, method=_paged(request.method, is_async=True))
    return AsyncPaginator(lambda: caller.call(page_request, _attaching(lister, request)))


def _attaching(lister: PageFetcher, request: Request) -> Callable[[Any], Any]:
    return lambda page: as_sent(page).attach(lister, request)


def _paged(method: ApiMethod, *, is_async: bool) -> ApiMethod:
    """Return a copy of the method whose response type is the page class."""
    kind = method.page.async_page if is_async else method.page.sync_page
    return replace(method, response_type=_page_class(kind, method.response_type), page=None)


@functools.cache
def _page_class(kind: Any, item: Any) -> Any:
    return kind[named(item) if isinstance(item, str) else item]
