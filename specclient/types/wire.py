"""What crosses the network: a request ready to send, an answer as received, and what no error may show."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from specclient.errors import APIError

#: Headers whose values may be shown; any other may have been set to hold a key.
PUBLIC_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
        "x-stainless-retry-count",
    }
)
_KEY_HEADERS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
)
_REDACTED = "[redacted]"
_SHORTEST_KEY = 4
_SHORTEST_VALUE = 7  # of other headers and the query: "true" and "json" are no secrets, and stand everywhere
_BETWEEN = re.compile(r"[\s;,]+")


class Secrets:
    """The values of a request that no error, log or repr may show.

    Args:
        headers: of the request, every layer's; those of :data:`PUBLIC_HEADERS` are no secrets.
        query: of its URL, as sent.
    """

    def __init__(self, headers: Iterable[tuple[str, str]] = (), query: str = "") -> None:
        found: set[str] = set()
        for name, value in headers:
            name = name.lower()  # noqa: PLW2901
            if name not in PUBLIC_HEADERS:
                shortest = _SHORTEST_KEY if name in _KEY_HEADERS else _SHORTEST_VALUE
                # `Bearer KEY` and `session=KEY; theme=x`: a server may echo the key alone.
                named = (part.partition("=")[2].strip('"') for part in _BETWEEN.split(value))
                parts = (value, *value.split()[1:], *named)
                found.update(part for part in parts if len(part) >= shortest)
        for pair in query.split("&"):
            value = pair.partition("=")[2]
            found.update(text for text in (value, unquote_plus(value)) if len(text) >= _SHORTEST_VALUE)
        found.update([text.replace("/", "\\/") for text in found])  # as some servers write it in JSON
        self._values = sorted(found, key=lambda text: (-len(text), text))  # what holds another one first

    def redact(self, value: Any) -> Any:
        """Return text, or what was decoded from JSON, without any secret."""
        if isinstance(value, str):
            for secret in self._values:
                value = value.replace(secret, _REDACTED)
            return value
        if isinstance(value, Mapping):
            return {self.redact(key): self.redact(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.redact(inner) for inner in value]
        if isinstance(value, int | float) and self.redact(str(value)) != str(value):
            return _REDACTED
        return value

    def header(self, name: str, value: str) -> str:
        """Return what may be shown of a request's header."""
        return value if name.lower() in PUBLIC_HEADERS else _REDACTED

    def url(self, url: str) -> str:
        """Return ``url`` with the values of its query taken out."""
        base, mark, query = url.partition("?")
        names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
        return base + mark + "&".join(f"{name}={_REDACTED}" for name in names)

    def clean(self, error: APIError) -> None:
        """Take every secret out of an error's text and body, in place."""
        message = error.message
        if isinstance(error.body, str):
            # An excerpt, which the message quotes and which may have been cut amid a secret.
            excerpt = self._redact_cut(error.body)
            message = message.replace(repr(error.body), repr(excerpt))
            error.body = excerpt
        else:
            error.body = self.redact(error.body)
        error.message = self.redact(message)
        error.args = (error.message,)
        error.code, error.param, error.type = map(self.redact, (error.code, error.param, error.type))

    def _redact_cut(self, text: str) -> str:
        text = self.redact(text)
        for secret in self._values:
            for length in range(len(secret) - 1, _SHORTEST_KEY - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + _REDACTED
        return text


class FailedAttempt(NamedTuple):
    """A try that failed, and was followed by another one.

    Attributes:
        error: class name of what it raised.
        status: of the answer that refused it; None where none came.
        seconds: it took, with the wait for its turn.
        sent: whether it may have reached the server.
    """

    error: str
    status: int | None
    seconds: float
    sent: bool


@dataclass(frozen=True, slots=True)
class WireRequest:
    """An HTTP request, complete; made by a provider's ``encode``, sent by the transport.

    Attributes:
        content: a body as it is: bytes, text, a binary file, or an iterable or async iterable of bytes;
            otherwise ``data`` and ``files`` make one.
        deployment: what rate limits, holds and the breaker are kept by: ``provider/model``.
        timeout: seconds, the transport's own timeout object, or None for the client's.
        max_retries: None for the client's.
        data: the fields of a form.
        files: its files, ``(field, file)`` or ``(field, (name, file, type))`` each; bytes, text, or a binary
            file, which is read as it is sent. The body is then ``multipart/form-data``. A file that cannot be
            sought is sent once: no retry follows.
        auth: asked before each try for headers, which win over ``headers`` and are all secrets.
        deadline_s: seconds for all tries and the waits before and between them; None for no end.
        retryable: whether a second try may be made at all.
        follow_redirects: whether redirects are followed; None for the client's way, and ours follows them.
        count_retries: whether to send ``x-stainless-retry-count`` where ``headers`` holds none.
        tokens: an estimate of those the call will use, prompt and answer; None where there is none.
        tried: told of each try that failed and is followed by another one.
    """

    method: str
    url: str = field(repr=False)  # may carry a key in its query
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # carries the key
    content: Any = None
    deployment: str = ""
    timeout: Any = None
    max_retries: int | None = None
    data: Mapping[str, Any] | None = None
    files: Sequence[tuple[str, Any]] | None = None
    auth: Callable[[], Awaitable[Mapping[str, str]]] | None = field(default=None, repr=False)
    deadline_s: float | None = None
    retryable: bool = True
    follow_redirects: bool | None = None
    count_retries: bool = True
    tokens: int | None = None
    tried: Callable[[FailedAttempt], None] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A whole answer with a status below 400.

    Attributes:
        headers: names in lower case.
        attempts: tries it took, the first included.
        secrets: returns what an error about this answer must not show.
        made: makes the HTTP library's own object; most calls never look at it.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    attempts: int = 1
    secrets: Callable[[], Secrets] = field(default=Secrets, repr=False, compare=False)
    made: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def response(self) -> Any:
        """The HTTP library's own object, read whole, whose request carries the key; None without one."""
        return None if self.made is None else self.made()

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return self.headers.get("x-request-id") or self.headers.get("request-id")
