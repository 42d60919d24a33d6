"""HTTP requests ready to send, responses as received, and the secrets that errors must not show."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from specclient.errors import APIError, request_id_in
from specclient.runtime.masked_urls import mask_url_passwords

#: Headers whose values may be shown; any other header may hold a key.
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
        "x-goog-user-project",
        "x-stainless-retry-count",
    }
)
#: The media type of AWS's binary streams of events.
FRAMES_TYPE = "application/vnd.amazon.eventstream"
_KEY_HEADERS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
)
_REDACTED = "[redacted]"
_SHORTEST_KEY = 4
_SHORTEST_VALUE = 7  # of other headers and the query; "true" and "json" are common words
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_BETWEEN = re.compile(r"[\s;,]+")


class Secrets:
    """The values of a request that no error, log or repr may show.

    Args:
        headers: the request's headers; those in :data:`PUBLIC_HEADERS` are not secret.
        query: the query of its URL, as sent.
    """

    def __init__(self, headers: Iterable[tuple[str, str]] = (), query: str = "") -> None:
        found: set[str] = set()
        for name, value in headers:
            name = name.lower()  # noqa: PLW2901
            if name not in PUBLIC_HEADERS:
                shortest = _SHORTEST_KEY if name in _KEY_HEADERS else _SHORTEST_VALUE
                # `Bearer KEY` and `session=KEY; theme=x`: a server may echo the key without the rest.
                named = (part.partition("=")[2].strip('"') for part in _BETWEEN.split(value))
                parts = (value, *value.split()[1:], *named, *_access_keys(value))
                found.update(part for part in parts if len(part) >= shortest)
        for pair in query.split("&"):
            value = pair.partition("=")[2]
            found.update(text for text in (value, unquote_plus(value)) if len(text) >= _SHORTEST_VALUE)
        found.update([text.replace("/", "\\/") for text in found])  # the escape that some servers use in JSON
        self._values = sorted(found, key=lambda text: (-len(text), text))  # longest first

    def redact(self, value: Any) -> Any:
        """Return a text or a decoded JSON value with every secret replaced; one nested too deeply whole."""
        try:
            return self._redacted(value)
        except RecursionError:
            return _REDACTED

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._values:
                value = value.replace(secret, _REDACTED)
            return value
        if isinstance(value, Mapping):
            return {self._redacted(key): self._redacted(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._redacted(inner) for inner in value]
        if isinstance(value, int | float) and self._redacted(_digits(value)) != _digits(value):
            return _REDACTED
        return value

    def header(self, name: str, value: str) -> str:
        """Return the value of a request header if it is public, else a placeholder."""
        return value if name.lower() in PUBLIC_HEADERS else _REDACTED

    def url(self, url: str) -> str:
        """Return a URL without its password, and with the values of its query replaced."""
        base, mark, query = url.partition("?")
        if "@" in base:
            base = mask_url_passwords(base)
        names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
        return base + mark + "&".join(f"{name}={_REDACTED}" for name in names)

    def clean(self, error: APIError) -> None:
        """Replace every secret in an error's message and body, in place."""
        message = error.message
        if isinstance(error.body, str):
            # An excerpt, quoted by the message; it may end in the middle of a secret.
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


def _access_keys(value: str) -> list[str]:
    """Return the id of the access key in the header of a signature for AWS (Signature Version 4)."""
    return _CREDENTIAL.findall(value) if value.startswith("AWS4-") else []


def _digits(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than Python converts
        return ""


class FailedAttempt(NamedTuple):
    """An attempt that failed and was followed by another one.

    Attributes:
        error: the class name of the exception.
        status: the status of the response; None without a response.
        seconds: the duration, including the wait for a rate limit.
        sent: whether the request may have reached the server.
    """

    error: str
    status: int | None
    seconds: float
    sent: bool


#: Returns a request as one attempt sends it: with a fresh key or token, with the signature of its method,
#: URL, headers and body, or at a URL that depends on the credentials. It is called before each attempt with
#: the request as encoded, whose ``content`` is bytes unless it is a stream or a form. Headers that it adds
#: are secret, except those in :data:`PUBLIC_HEADERS`.
Authorize = Callable[["WireRequest"], Awaitable["WireRequest"]]


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A complete HTTP request; made by a provider's ``encode``, sent by the transport.

    Attributes:
        content: the body: bytes, text, a binary file, or an iterable or async iterable of bytes; None to
            make it from ``data`` and ``files``.
        deployment: the key of rate limits, pauses and circuits: ``provider/model``.
        timeout: seconds, the transport's own timeout object, or None for the client's timeout.
        max_retries: None for the client's setting.
        data: the fields of a form.
        files: the files of the form, each ``(field, file)`` or ``(field, (name, file, type))``, with bytes,
            text, or a binary file, which is read while it is sent. The body is then ``multipart/form-data``.
            A file that is not seekable is sent once, without retries.
        authorize: called before each attempt; see :data:`Authorize`. None sends the request as it is.
        others_serve: returns whether other servers of the deployment than the one of the last attempt are
            expected to answer, so that its failure does not count for the circuit. None for a single server.
        deadline_s: seconds for all attempts and the waits before and between them; None for no limit.
        retryable: whether the request may be retried.
        follow_redirects: whether redirects are followed; None for the client's setting, True in our client.
        count_retries: whether to send ``x-stainless-retry-count`` if ``headers`` has none.
        tokens: an estimate of the tokens of prompt and answer; None if unknown.
        on_failed_attempt: called with each failed attempt that is followed by another one.
        start_hint: a sentence for the error where no server answers: how it is started. Empty for none.
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
    authorize: Authorize | None = field(default=None, repr=False)
    others_serve: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    deadline_s: float | None = None
    retryable: bool = True
    follow_redirects: bool | None = None
    count_retries: bool = True
    tokens: int | None = None
    on_failed_attempt: Callable[[FailedAttempt], None] | None = field(default=None, repr=False, compare=False)
    start_hint: str = ""

    def drop_token(self) -> bool:
        """Let ``authorize`` forget the token of this request, which the server refused by a 401.

        Returns:
            Whether another attempt gets a new token: ``authorize`` has a method ``drop`` that says so.
        """
        drop: Callable[[WireRequest], bool] | None = getattr(self.authorize, "drop", None)
        return drop is not None and drop(self)

    def with_headers(self, winning: Mapping[str, str]) -> WireRequest:
        """Return the request with headers that override others of the same name, in any case."""
        names = {name.lower() for name in winning}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in names}
        return replace(self, headers={**kept, **winning})


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A response, read to its end, with a status below 400.

    Attributes:
        headers: names in lower case.
        content: the body.
        attempts: the number of attempts, including the first.
        secrets: returns the values that an error about this response must not show.
        make_response: makes the HTTP library's own response object, which few calls need.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    attempts: int = 1
    secrets: Callable[[], Secrets] = field(default=Secrets, repr=False, compare=False)
    make_response: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def response(self) -> Any:
        """The HTTP library's own response object, whose request holds the key; None if there is none."""
        return None if self.make_response is None else self.make_response()

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return request_id_in(self.headers)
