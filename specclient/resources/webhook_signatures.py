"""Webhooks: verifies the signature of a webhook and parses its event."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

from specclient.errors import InvalidWebhookSignatureError
from specclient.types.named import reader

DEFAULT_TOLERANCE_S = 300
_PREFIX = "whsec_"
_NO_SECRET = (
    "The webhook secret must either be set using the env var, OPENAI_WEBHOOK_SECRET, "  # noqa: S105
    "on the client class, OpenAI(webhook_secret='123'), or passed to this function"
)


def unwrap(self: Any, payload: str | bytes, headers: Mapping[str, str], *, secret: str | None = None) -> Any:
    """Verify a webhook and return its event.

    Args:
        payload: the request body, unchanged.
        headers: the request headers.
        secret: the signing secret; None for the client's.

    Raises:
        InvalidWebhookSignatureError: see ``verify_signature``.
    """
    self.verify_signature(payload=payload, headers=headers, secret=secret)
    return reader("webhooks.UnwrapWebhookEvent")(payload if isinstance(payload, bytes) else payload.encode())


def verify_signature(
    self: Any,
    payload: str | bytes,
    headers: Mapping[str, str],
    *,
    secret: str | None = None,
    tolerance: int = DEFAULT_TOLERANCE_S,
) -> None:
    """Raise if a webhook's signature does not match, or its timestamp is too old or too new.

    Args:
        tolerance: maximum seconds between the webhook's timestamp and this machine's clock.

    Raises:
        InvalidWebhookSignatureError: the signature does not match, or the timestamp is out of tolerance.
        ValueError: a header or the secret is missing.
    """
    if secret is None:
        secret = self.caller.webhook_secret
    if secret is None:
        raise ValueError(_NO_SECRET)
    check(payload, headers, secret=secret, tolerance=tolerance, now=time.time())


def check(
    payload: str | bytes, headers: Mapping[str, str], *, secret: str, tolerance: int, now: float
) -> None:
    """Check the signature and the time of a webhook (https://www.standardwebhooks.com).

    Args:
        now: the current time, in seconds since 1970.

    Raises:
        InvalidWebhookSignatureError, ValueError: as for ``verify_signature``.
    """
    signature, stamp = _header(headers, "webhook-signature"), _header(headers, "webhook-timestamp")
    identity = _header(headers, "webhook-id")
    try:
        sent = int(stamp)
    except ValueError:
        raise InvalidWebhookSignatureError("Invalid webhook timestamp format") from None
    if int(now) - sent > tolerance:
        raise InvalidWebhookSignatureError("Webhook timestamp is too old")
    if sent > int(now) + tolerance:
        raise InvalidWebhookSignatureError("Webhook timestamp is too new")
    key = base64.b64decode(secret[len(_PREFIX) :]) if secret.startswith(_PREFIX) else secret.encode()
    body = payload if isinstance(payload, bytes) else payload.encode()
    digest = hmac.new(key, f"{identity}.{stamp}.".encode() + body, hashlib.sha256).digest()
    expected = base64.b64encode(digest)
    given = [part.removeprefix("v1,").encode() for part in signature.split()]
    if not any(hmac.compare_digest(expected, one) for one in given):
        raise InvalidWebhookSignatureError(
            "The given webhook signature does not match the expected signature"
        )


def _header(headers: Mapping[str, str], name: str) -> str:
    for known, value in headers.items():
        if known.lower() == name:
            return value
    raise ValueError(f"Could not find {name} header")
