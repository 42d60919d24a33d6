"""Blocking requests to token services, by an own client or the user's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from specclient.errors import APIConnectionError, APITimeoutError, OpenAIError, SubjectTokenProviderError
from specclient.runtime.forks import import_lock

_MOST_BYTES: Final = 1 << 20


def post_json(url: str, body: Mapping[str, str], *, timeout_s: float) -> tuple[int, bytes, Any]:
    """Send an object to a token service, without following redirects.

    Returns:
        The status, the content, and an ``httpx.Response`` for errors. That has neither the request's body nor
        the content of a success, which hold tokens.

    Raises:
        APIConnectionError, APITimeoutError: the service did not answer.
        OpenAIError: its answer is over 1 MiB.
    """
    with import_lock:
        import httpx  # noqa: PLC0415 - 50 ms that few programs need

    content = b""
    failure: APIConnectionError | None = None
    try:
        with (
            httpx.Client(follow_redirects=False, timeout=timeout_s) as client,
            client.stream("POST", url, json=dict(body)) as response,
        ):
            for piece in response.iter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    raise OpenAIError("Token exchange response is over 1 MiB")
    except httpx.HTTPError as error:
        kind = APITimeoutError if isinstance(error, httpx.TimeoutException) else APIConnectionError
        failure = kind(request=httpx.Request("POST", url))
        failure.sent = False  # the call itself
        failure.__cause__ = type(error)(str(error))  # the error itself has the request with the subject token
    if failure is not None:
        raise failure
    bare = httpx.Response(
        response.status_code,
        headers={name: text for name, text in response.headers.items() if name == "content-type"},
        content=b"" if response.is_success else content,
        request=httpx.Request("POST", url),
    )
    return response.status_code, content, bare


def get_token_from(
    url: str,
    what: str,
    http_client: Any,
    *,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    timeout: float,
) -> Any:
    """Return the response of a cloud's metadata service.

    Args:
        url: its address.
        what: names the token in errors.
        http_client: the user's client; None for a new one.
        params, headers: of the request.
        timeout: seconds.

    Raises:
        SubjectTokenProviderError: it did not answer, or with an error status.
    """
    with import_lock:
        import httpx  # noqa: PLC0415 - 50 ms that few programs need

    try:
        if http_client is not None:
            response = http_client.get(url, params=params, headers=headers, timeout=timeout)
        else:
            with httpx.Client() as client:
                response = client.get(url, params=params, headers=headers, timeout=timeout)
    except Exception as error:  # of httpx, or of another library: `http_client` is the user's
        raise SubjectTokenProviderError(f"Failed to fetch {what}: {error}") from error
    if response.is_error:
        raise SubjectTokenProviderError(
            f"Failed to fetch {what}: HTTP {response.status_code}", response=response
        )
    return response


def library_and_client(http_client: Any) -> tuple[Any, Any]:
    """Return the HTTP library, httpx or httpx2, of a user's client, and the client.

    Args:
        http_client: None for a new client of httpx.
    """
    if http_client is None:
        with import_lock:
            import httpx  # noqa: PLC0415 - 50 ms that few programs need

        return httpx, httpx.Client()
    names = (cls.__module__.partition(".")[0] for cls in type(http_client).__mro__)
    return sys.modules[next(name for name in names if name in ("httpx", "httpx2"))], http_client
