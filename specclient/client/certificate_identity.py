"""Access tokens of a workload that a client certificate identifies (mutual TLS, RFC 8705).

The certificate is that of the user's ``http_client``, which also sends the exchange of the token.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from specclient.client.workload_identity import AccessToken, WorkloadIdentityAuth, X509WorkloadIdentity
from specclient.errors import APIConnectionError, APITimeoutError, OAuthError, OpenAIError
from specclient.http_transport import retry
from specclient.http_transport.token_requests import library_and_client
from specclient.providers.endpoint import Endpoint
from specclient.resources.step_methods import SleepStep, Steps, run_steps, run_steps_async
from specclient.types.wire import WireRequest

EXCHANGE_URL: Final = "https://mtls.auth.openai.com/oauth/token"
#: The API's addresses that ask for a certificate, by ``data_residency``.
BASE_URLS: Final[Mapping[str, str]] = {
    "global": "https://mtls.api.openai.com/v1",
    "us": "https://mtls-us.api.openai.com/v1",
    "eu": "https://mtls-eu.api.openai.com/v1",
}
_PLAIN_URL: Final = "https://api.openai.com/v1"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_SUBJECT: Final = "urn:openai:params:oauth:token-type:x509"
_MOST_RETRIES: Final = 2
_EXCHANGE_S: Final = 10.0
_REFUSED: Final = (400, 401, 403)
_TRANSIENT: Final = (408, 409, 429)
#: Seconds until the next exchange, after one failed while the token is still valid.
_PAUSE_S: Final = 0.5
_FIELDS: Final = {"type", "identity_provider_id", "service_account_id", "refresh_buffer_seconds"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_OTHER_KEYS: Final = {"api-key", "x-api-key", "proxy-authorization"}


def checked_certificate_identity(identity: Any) -> X509WorkloadIdentity:
    """Return the identity of a client certificate after a check.

    Raises:
        OpenAIError: it has other fields, or fields of the wrong type.
    """
    if "provider" in identity or "client_id" in identity:
        raise OpenAIError("X.509 workload identity does not accept a subject-token provider or client ID")
    if set(identity) - _FIELDS:
        raise OpenAIError(
            "X.509 workload identity accepts only identity IDs and an optional refresh buffer; "
            f"it has {sorted(map(str, set(identity) - _FIELDS))[0]!r}, too"
        )
    for name in ("identity_provider_id", "service_account_id"):
        if not isinstance(identity.get(name), str) or not identity[name]:
            raise OpenAIError(
                f"X.509 workload identity requires identity-provider and service-account IDs; {name} is "
                f"{identity.get(name)!r}"
            )
    buffer = identity.get("refresh_buffer_seconds")
    if buffer is not None and not (_is_finite(buffer) and buffer >= 0):
        raise OpenAIError("X.509 workload identity requires a finite, non-negative refresh buffer")
    return cast("X509WorkloadIdentity", dict(identity))


def mtls_base_url(residency: str | None) -> str:
    """Return the API's address that asks for a certificate.

    Raises:
        OpenAIError: there is none in this region.
    """
    if (found := BASE_URLS.get(residency or "global")) is None:
        raise OpenAIError("X.509 workload identity requires a supported regional mTLS endpoint")
    return found


def _check_url(url: str) -> None:
    """Raise OpenAIError if a base URL cannot ask for a certificate, or has a password."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise OpenAIError("X.509 workload identity requires an absolute HTTPS API URL")
    if parts.username or parts.password:
        raise OpenAIError("X.509 workload identity API URLs cannot contain user credentials")


class CertificateIdentityAuth(WorkloadIdentityAuth):
    """Keeps the access token of a certificate's identity; see :class:`WorkloadIdentityAuth`.

    Args:
        workload_identity: the identity.
        http_client: the user's client of httpx or httpx2, with the certificate; None for one without.
        max_retries: of an exchange, at most 2.
    """

    opens_sockets = False

    def __init__(
        self, *, workload_identity: X509WorkloadIdentity, http_client: Any, max_retries: int
    ) -> None:
        self.http_client = http_client
        self._is_async = http_client is not None and inspect.iscoroutinefunction(http_client.send)
        self._retries = min(max_retries, _MOST_RETRIES)
        self._renewing: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        super().__init__(workload_identity=workload_identity, token_exchange_url=EXCHANGE_URL)

    def _checked(self, identity: Any) -> Any:
        return checked_certificate_identity(identity)

    def placed(self, endpoint: Endpoint, options: Mapping[str, Any]) -> Endpoint:
        """Return the default endpoint, at the address that asks for the certificate unless one is set.

        Raises:
            OpenAIError: the address that is set cannot ask for one.
        """
        own = super().placed(endpoint, options)
        if options.get("base_url") is None and own.base_url == _PLAIN_URL:
            own = replace(own, base_url=BASE_URLS["global"])
        _check_url(own.base_url)
        given = {name.lower() for name in options.get("default_headers") or {}}
        if "authorization" not in given:  # then it is of OPENAI_CUSTOM_HEADERS, for other clients
            kept = {name: text for name, text in own.headers.items() if name.lower() != "authorization"}
            own = replace(own, headers=kept)
        return own

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with the access token, which follows no redirect; raises as :meth:`get_token`."""
        if any(name.lower().replace("_", "-") in _OTHER_KEYS for name in request.headers):
            raise OpenAIError("X.509 workload identity requests cannot include API-key or proxy credentials")
        return replace(await super().__call__(request), follow_redirects=False)

    async def get_token_async(self) -> str:
        """Return a valid access token, exchanged by the user's client; raises as :meth:`get_token`."""
        if not self._is_async:
            return await super().get_token_async()
        async with self._lock_of_loop():
            held = self._token
            if held is None or time.monotonic() >= held.refresh_at:
                self._token = held = await run_steps_async(self._exchange_steps())
            return held.value

    def _lock_of_loop(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._renewing is None or self._renewing[0] is not loop:
            self._renewing = (loop, asyncio.Lock())
        return self._renewing[1]

    def _exchanged(self) -> AccessToken:
        token: AccessToken = run_steps(self._exchange_steps())
        return token

    def _exchange_steps(self) -> Steps:
        """Exchange the certificate for a token; while the last token is valid, a failure keeps it."""
        started = time.monotonic()
        try:
            response = yield from self._answer()
            if response.status_code in _REFUSED:
                raise OAuthError(response=_bare(response), body=_fault(response))
            return self._new_token(_body_of(response), started)
        except OpenAIError as error:
            held = self._token
            if held is None or time.monotonic() >= held.expires_at or not _is_transient(error):
                raise
            return replace(held, refresh_at=time.monotonic() + _PAUSE_S)

    def _answer(self) -> Steps:
        """Return the response of the token service, after retries."""
        library, client = library_and_client(self.http_client)
        for attempt in range(self._retries + 1):
            request = library.Request(
                "POST",
                self.token_exchange_url,
                json={
                    "grant_type": _GRANT,
                    "subject_token_type": _SUBJECT,
                    "identity_provider_id": self.workload_identity["identity_provider_id"],
                    "service_account_id": self.workload_identity["service_account_id"],
                },
                extensions={"timeout": library.Timeout(_EXCHANGE_S).as_dict()},
            )
            failure: APIConnectionError | None = None
            try:
                response = yield client.send(request, auth=None, follow_redirects=False)
            except library.TransportError as error:
                timed_out = isinstance(error, library.TimeoutException)
                failure = (APITimeoutError if timed_out else APIConnectionError)(request=request)
                failure.sent = False  # the call itself
                failure.__cause__ = error
                delay: float | None = retry.backoff(attempt, 0)
            else:
                delay = _delay(response, attempt)
            if delay is None or attempt == self._retries:
                break
            yield SleepStep(delay)
        if failure is not None:
            raise failure
        return response

    def _new_token(self, body: Mapping[str, Any], started: float) -> AccessToken:
        token, kind = body.get("access_token"), body.get("token_type", "bearer")
        life: Any = body.get("expires_in")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise OpenAIError("X.509 token exchange response must use the Bearer token type")
        if not isinstance(token, str) or not token:
            raise OpenAIError("Token exchange response did not include a valid access_token")
        if _TOKEN.fullmatch(token) is None:
            raise OpenAIError("X.509 token exchange response did not include a valid Bearer access_token")
        if not _is_finite(life) or not life > 0:
            raise OpenAIError("X.509 token exchange response did not include a positive, finite expires_in")
        return self._token_of(token, life, started)


class _TransientExchangeError(OpenAIError):
    """The token service failed in a way that a later exchange may not."""


def _is_transient(error: OpenAIError) -> bool:
    return isinstance(error, _TransientExchangeError | APIConnectionError)


def _delay(response: Any, attempt: int) -> float | None:
    """Return the seconds before the next attempt; None for none."""
    status, advice = response.status_code, response.headers.get(retry.ADVICE_HEADER)
    if status in _REFUSED or advice == "false":
        return None
    if advice != "true" and status not in _TRANSIENT and status < 500:
        return None
    asked = retry.requested_delay(response.headers, None, time.time())
    if asked is not None:
        return asked if asked <= retry.LONGEST_DELAY_S else None
    return retry.backoff(attempt, 0)


def _body_of(response: Any) -> Mapping[str, Any]:
    """Return the object in the response of a successful exchange."""
    status = response.status_code
    if not 200 <= status < 300:
        may_pass = (
            status in _TRANSIENT or status >= 500 or response.headers.get(retry.ADVICE_HEADER) == "true"
        )
        kind = _TransientExchangeError if may_pass else OpenAIError
        raise kind(f"Token exchange failed with status {status}")
    try:
        body = json.loads(response.content) if response.content else None
    except ValueError:
        body = None
    if body is None:
        raise OpenAIError("Token exchange succeeded but response body was empty")
    if not isinstance(body, dict):
        raise OpenAIError("Token exchange succeeded but response body was not a JSON object")
    return body


def _fault(response: Any) -> dict[str, str] | None:
    """Return the error code of a refusal, without its other fields."""
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return {"error": error} if isinstance(error, str) else None


def _bare(response: Any) -> Any:
    """Return a response without the body of its request."""
    request = type(response.request)(response.request.method, response.request.url)
    return type(response)(
        response.status_code, headers=response.headers, content=response.content, request=request
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
