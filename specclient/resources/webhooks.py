"""Turn a webhook's body and headers into its event, once its signature has been found to be right."""

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
    """Return the event a webhook brings.

    Args:
        payload: the body as it came.
        headers: of the request.
        secret: what it was signed with; the client's if None.

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
    """Raise unless a webhook came from OpenAI, and not long ago.

    Args:
        tolerance: seconds that the sender's clock and ours may be apart, and the message under way.

    Raises:
        InvalidWebhookSignatureError: for a signature that does not fit, or a time out of tolerance.
        ValueError: for a missing header or secret.
    """
    if secret is None:
        secret = self.caller.webhook_secret
    if secret is None:
        raise ValueError(_NO_SECRET)
    check(payload, headers, secret=secret, tolerance=tolerance, now=time.time())


def check(
    payload: str | bytes, headers: Mapping[str, str], *, secret: str, tolerance: int, now: float
) -> None:
    """Check a webhook at a given time, in seconds since 1970 (https://www.standardwebhooks.com).

    Raises:
        InvalidWebhookSignatureError, ValueError: as ``verify_signature``.
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
