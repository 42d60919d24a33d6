"""Sending of a message to a webhook."""

from __future__ import annotations

from typing import Any

import httpx

from specclient.errors import APIConnectionError
from specclient.runtime.masked_urls import mask_url, masked_reason

__all__ = ["send_json"]


def send_json(url: str, value: Any, *, timeout_s: float = 10.0) -> None:
    """Send a value as JSON by POST. Sends no key, and follows no redirects.

    Args:
        url: the address.
        value: JSON.
        timeout_s: seconds for each of connect, read, write and pool.

    Raises:
        APIConnectionError: the URL cannot be reached, or answers with another status than 2xx. The message
            names the URL without its secrets.
    """
    shown = mask_url(url)
    try:
        answer = httpx.post(url, json=value, timeout=timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = f"{type(error).__name__}{masked_reason(url, error)}"
        raise APIConnectionError(message=f"{shown} could not be reached ({reason})") from None
    if not answer.is_success:
        raise APIConnectionError(message=f"{shown} answered {answer.status_code}")
