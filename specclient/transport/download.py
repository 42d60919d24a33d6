"""Turn a public address into the bytes that stand there."""

from __future__ import annotations

import httpx

from specclient.errors import APIConnectionError

__all__ = ["download"]

#: Bytes; nothing that is fetched here comes near it.
_MOST = 64 * 2**20


def download(url: str, *, timeout_s: float = 30.0) -> bytes:
    """Return what stands at an address; sends no key.

    Raises:
        APIConnectionError: it cannot be reached or read, or answers with an error; names it and the reason.
    """
    try:
        with httpx.stream("GET", url, timeout=timeout_s, follow_redirects=True) as answer:
            answer.raise_for_status()
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > _MOST:
                    raise APIConnectionError(message=f"{url} is longer than {_MOST} bytes")
            return bytes(content)
    except httpx.HTTPStatusError as error:
        raise APIConnectionError(message=f"{url} answered {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise APIConnectionError(
            message=f"{url} could not be fetched ({type(error).__name__}: {error})"
        ) from None
