"""Types that both httpx and httpx2 accept: transports, and the bodies of their responses.

httpx2 is a fork of httpx with the same interfaces, and may be absent.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import httpx

try:
    import httpx2
except ModuleNotFoundError:
    _LIBRARIES: tuple[Any, ...] = (httpx,)
else:
    _LIBRARIES = (httpx, httpx2)

__all__ = ["AsyncBody", "AsyncLibraryTransport", "LibraryTransport", "SyncBody", "library_of"]

if TYPE_CHECKING:

    class LibraryTransport(httpx.BaseTransport, httpx2.BaseTransport):  # type: ignore[misc]
        """A synchronous transport of either library."""

    class AsyncLibraryTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):  # type: ignore[misc]
        """An asynchronous transport of either library."""

    class SyncBody(httpx.SyncByteStream, httpx2.SyncByteStream):
        """A synchronous body of either library."""

    class AsyncBody(httpx.AsyncByteStream, httpx2.AsyncByteStream):
        """An asynchronous body of either library."""

else:

    def _common(name: str, attribute: str) -> type:
        bases = tuple(getattr(library, attribute) for library in _LIBRARIES)
        return type(name, bases, {"__module__": __name__})

    LibraryTransport = _common("LibraryTransport", "BaseTransport")
    AsyncLibraryTransport = _common("AsyncLibraryTransport", "AsyncBaseTransport")
    SyncBody = _common("SyncBody", "SyncByteStream")
    AsyncBody = _common("AsyncBody", "AsyncByteStream")


def library_of(request: Any) -> Any:
    """Return the module, httpx or httpx2, that a request is an object of."""
    return sys.modules[type(request).__module__.partition(".")[0]]
