"""The head of a response, which raw and unread responses share."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from specclient.errors import request_id_in
from specclient.types.base import WireModel


class ResponseHead:
    """The head of a response: status, headers and URL.

    Args:
        response: the HTTP library's response; None if an engine in this process served the call.
        attempts: the number of HTTP attempts, the one that returned the response included.
    """

    def __init__(self, response: Any, attempts: int = 1) -> None:
        self.http_response = response
        self._attempts = attempts

    @property
    def retries_taken(self) -> int:
        """The number of attempts before the one that returned this response."""
        return self._attempts - 1

    @property
    def headers(self) -> Any:
        """The response headers; lookup ignores case."""
        return {} if self.http_response is None else self.http_response.headers

    @property
    def http_request(self) -> Any:
        """The request as it was sent."""
        return self.http_response.request

    @property
    def status_code(self) -> int:
        """The HTTP status code; 200 for a local engine."""
        return 200 if self.http_response is None else int(self.http_response.status_code)

    @property
    def url(self) -> Any:
        """The URL of the response."""
        return self.http_response.url

    @property
    def method(self) -> str:
        """The HTTP method of the request."""
        return str(self.http_request.method)

    @property
    def http_version(self) -> str:
        """The HTTP version, such as ``HTTP/1.1``."""
        return str(self.http_response.http_version)

    @property
    def elapsed(self) -> timedelta:
        """The time from sending the request to the end of the body; available after the body is read."""
        elapsed: timedelta = self.http_response.elapsed
        return elapsed

    @property
    def is_closed(self) -> bool:
        """Whether the connection has been released."""
        return self.http_response is None or bool(self.http_response.is_closed)

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return request_id_in(self.headers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self.status_code}]>"

    def _text(self, content: bytes) -> str:
        encoding = None if self.http_response is None else self.http_response.charset_encoding
        with suppress(LookupError, ValueError):  # a charset that is no encoding of texts, as ``base64``
            return content.decode(encoding or "utf-8", "replace")
        return content.decode("utf-8", "replace")

    def _noted(self, value: Any) -> Any:
        """Attach the request id to a parsed model, and return it; other values are returned unchanged."""
        if isinstance(value, WireModel):
            value.attach_request_id(self.request_id)
        return value

    def _is_whole(self, to: Any) -> bool:
        """Return whether ``to`` is the HTTP library's own response class."""
        return isinstance(to, type) and to.__name__ == "Response" and to.__module__.startswith("httpx")
