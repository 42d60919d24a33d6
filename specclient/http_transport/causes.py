"""The request and the cause of connection errors: httpx's objects, as in the OpenAI client, without secrets.

An exception of an HTTP library contains keys in places that cannot all be reached, and its traceback holds
the response. So an error's cause is a new exception of the class that httpx raises in this case.
"""

from __future__ import annotations

import sys
from typing import Any

from specclient.http_transport import lazy_httpx
from specclient.types.wire import Secrets, WireRequest

__all__ = ["httpx_cause", "httpx_request"]

#: Exceptions of aiohttp for which httpx raises RemoteProtocolError.
_PROTOCOL_ERRORS = frozenset({"ClientPayloadError", "ServerDisconnectedError", "ClientResponseError"})


def httpx_request(request: WireRequest, content: bytes | None, secrets: Secrets) -> Any:
    """Return a request that was sent without httpx as an ``httpx.Request``, without secrets.

    Args:
        request: the request as sent.
        content: its body; None if that is a file.
        secrets: the secrets of the request.
    """
    headers = {name: secrets.header(name, value) for name, value in request.headers.items()}
    return lazy_httpx.Request(request.method, secrets.url(request.url), headers=headers, content=content)


def httpx_cause(
    error: BaseException, text: str, request: Any, *, timed_out: str | None, unsent: bool
) -> BaseException:
    """Return the exception that httpx raises for a failed attempt.

    Args:
        error: the HTTP library's exception.
        text: its text without secrets.
        request: the request without secrets.
        timed_out: the exceeded time limit: ``connect``, ``read``, ``write`` or ``pool``; None if none was.
        unsent: whether the request was not sent.
    """
    kind: Any = type(error)
    if not _is_of_httpx(error):
        if timed_out is not None:
            name = f"{timed_out.capitalize()}Timeout"
        elif unsent:
            name = "ConnectError"
        else:
            names = (cls.__name__ for cls in type(error).__mro__)
            name = "ReadError" if _PROTOCOL_ERRORS.isdisjoint(names) else "RemoteProtocolError"
        kind = getattr(lazy_httpx, name)
    cause: BaseException = kind(text, request=request)
    return cause


def _is_of_httpx(error: BaseException) -> bool:
    """Return whether the exception is of the transport of httpx or httpx2."""
    kind = getattr(sys.modules.get(type(error).__module__.partition(".")[0]), "TransportError", None)
    return kind is not None and isinstance(error, kind)
