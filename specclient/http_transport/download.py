"""Download of a public URL into memory."""

from __future__ import annotations

import httpx

from specclient.errors import APIConnectionError
from specclient.runtime.masked_urls import mask_url, masked_reason

__all__ = ["download"]

_MAX_BYTES = 64 * 2**20


def download(url: str, *, timeout_s: float = 30.0) -> bytes:
    """Return the content of a URL. Sends no key, and follows redirects.

    Args:
        url: the address.
        timeout_s: seconds for each of connect, read, write and pool.

    Raises:
        APIConnectionError: the URL cannot be reached or read, answers with an error status, or is longer
            than 64 MiB. The message names the URL and the reason.
    """
    shown = mask_url(url)
    try:
        with httpx.stream("GET", url, timeout=timeout_s, follow_redirects=True) as response:
            response.raise_for_status()
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _MAX_BYTES:
                    raise APIConnectionError(message=f"{shown} is longer than {_MAX_BYTES} bytes")
            return bytes(content)
    except httpx.HTTPStatusError as error:
        raise APIConnectionError(message=f"{shown} answered {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = f"{type(error).__name__}{masked_reason(url, error)}"
        raise APIConnectionError(message=f"{shown} could not be fetched ({reason})") from None
