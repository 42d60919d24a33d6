"""Requests to other hosts than those of a client's providers: passed on unchanged, or refused."""

from __future__ import annotations

import threading
from typing import Any

from specclient.http_transport.library_types import library_of
from specclient.http_transport.retry import ADVICE_HEADER
from specclient.official_client.answer import TransportAnswer, TransportHead
from specclient.openai_http.errors import ServingError
from specclient.openai_http.response import JSON


class InnerTransports:
    """The transports of requests to other hosts, one for each library.

    Args:
        given: the user's transport, which is used for both libraries; None to make them.
        name: the name of the libraries' class.
    """

    def __init__(self, given: Any, name: str) -> None:
        self._given, self._name = given, name
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def of(self, request: Any) -> Any:
        """Return the transport of a request."""
        if self._given is not None:
            return self._given
        library = library_of(request)
        with self._lock:
            if library.__name__ not in self._made:
                self._made[library.__name__] = getattr(library, self._name)()
            return self._made[library.__name__]

    def take(self) -> list[Any]:
        """Return the transports made so far, and forget them."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
        return made


def refusal(request: Any) -> TransportAnswer:
    """Return the response of a strict transport to a request to another host."""
    error = ServingError(
        403,
        f"{request.url.scheme}://{request.url.host} is no address of a provider of this transport, which was "
        "made with strict=True; configure the provider, or leave strict out to pass the request on",
        code="foreign_host",
        headers={ADVICE_HEADER: "false"},
    )
    return TransportAnswer(
        TransportHead(403, [("content-type", JSON), *error.headers.items()]), error.body(), None
    )
