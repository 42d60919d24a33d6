"""Access tokens of a workload identity, exchanged for subject tokens (RFC 8693).

A program in a cloud then needs no API key: it sends a token of its cloud to OpenAI's token service and gets a
short-lived access token.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NotRequired, TypedDict, cast

from specclient.client.subject_tokens import SubjectTokenProvider
from specclient.errors import OAuthError, OpenAIError
from specclient.http_transport.token_requests import post_json
from specclient.providers.endpoint import Endpoint
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.types.wire import WireRequest

TOKEN_EXCHANGE_URL: Final = "https://auth.openai.com/oauth/token"  # noqa: S105 - an address
#: The value of ``client.api_key`` with a workload identity, as in the `openai` package.
PLACEHOLDER_KEY: Final = "workload-identity-auth"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPES: Final = {
    "jwt": "urn:ietf:params:oauth:token-type:jwt",
    "id": "urn:ietf:params:oauth:token-type:id_token",
}
_REFRESH_BUFFER_S: Final = 1200.0
_EXCHANGE_S: Final = 10.0
_REFUSED: Final = (400, 401, 403)


class WorkloadIdentity(TypedDict):
    """A workload's identity, proved by a subject token.

    Attributes:
        identity_provider_id: the identity provider's id at OpenAI.
        service_account_id: the service account that the workload acts as.
        provider: reads the subject token.
        refresh_buffer_seconds: how long before its expiry a token is renewed: 1,200 by default, and at most
            half of the token's life.
    """

    identity_provider_id: str
    service_account_id: str
    provider: SubjectTokenProvider
    refresh_buffer_seconds: NotRequired[float]


class X509WorkloadIdentity(TypedDict):
    """A workload's identity, proved by the client certificate of ``http_client``.

    Attributes:
        type: ``x509``.
        identity_provider_id, service_account_id, refresh_buffer_seconds: as in :class:`WorkloadIdentity`.
    """

    type: Literal["x509"]
    identity_provider_id: str
    service_account_id: str
    refresh_buffer_seconds: NotRequired[float]


def x509_workload_identity(
    *, identity_provider_id: str, service_account_id: str, refresh_buffer_seconds: float | None = None
) -> X509WorkloadIdentity:
    """Return the identity of a client certificate; see :class:`X509WorkloadIdentity`."""
    identity = X509WorkloadIdentity(
        type="x509", identity_provider_id=identity_provider_id, service_account_id=service_account_id
    )
    if refresh_buffer_seconds is not None:
        identity["refresh_buffer_seconds"] = refresh_buffer_seconds
    return identity


def is_certificate_identity(identity: Any) -> bool:
    """Return whether an identity is one of a client certificate."""
    return isinstance(identity, Mapping) and identity.get("type") == "x509"


def checked_identity(identity: Any) -> WorkloadIdentity:
    """Return the identity of a client after a check.

    Raises:
        OpenAIError: it is no identity, or has fields of the wrong type.
    """
    provider = identity.get("provider") if isinstance(identity, Mapping) else None
    if not isinstance(provider, Mapping) or not callable(provider.get("get_token")):
        raise OpenAIError(
            "Invalid `workload_identity` configuration: it must be a dict with `identity_provider_id`, "
            "`service_account_id`, and a `provider` that is a dict with `token_type` and `get_token`"
        )
    for name in ("identity_provider_id", "service_account_id"):
        if not isinstance(identity.get(name), str):
            raise OpenAIError(f"Invalid `workload_identity` configuration: `{name}` must be a string")
    buffer = identity.get("refresh_buffer_seconds", 0)
    if isinstance(buffer, bool) or not isinstance(buffer, (int, float)) or not buffer >= 0:
        raise OpenAIError(
            f"Invalid `workload_identity` configuration: `refresh_buffer_seconds` is {buffer!r}; it must be "
            "a number of seconds, 0 or more"
        )
    return cast("WorkloadIdentity", dict(identity))


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token, and when it is renewed."""

    value: str = field(repr=False)
    expires_at: float  # in seconds of the monotonic clock
    refresh_at: float  # likewise


class WorkloadIdentityAuth:
    """Keeps the access token of an identity, and exchanges it once for all callers.

    It is an :class:`specclient.providers.endpoint.Authorizer`. The first caller after ``refresh_at`` renews
    the token; others use the old one meanwhile, and wait only if it has expired.

    Args:
        workload_identity: the identity.
        token_exchange_url: the token service; None for OpenAI's.
    """

    #: Whether a WebSocket may be opened with a token.
    opens_sockets = True

    def __init__(
        self,
        *,
        workload_identity: WorkloadIdentity | X509WorkloadIdentity,
        token_exchange_url: str | None = None,
    ) -> None:
        self.workload_identity: Any = self._checked(workload_identity)
        self.token_exchange_url = token_exchange_url or TOKEN_EXCHANGE_URL
        self._token: AccessToken | None = None
        self._lock = threading.Lock()
        register_fork_reset(self)

    def _checked(self, identity: Any) -> Any:
        return checked_identity(identity)

    def placed(self, endpoint: Endpoint, _options: Mapping[str, Any]) -> Endpoint:
        """Return the default endpoint, authorised by this object.

        Args:
            _options: those of the client.
        """
        return replace(endpoint, key=None, key_source=None, authorizer=self)

    @property
    def lacks(self) -> None:
        """None: only an exchange shows whether a setting is missing or wrong."""
        return

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with the access token; raises as :meth:`get_token`."""
        token = await self.get_token_async()
        return request.with_headers({"authorization": f"Bearer {token}"})

    def drop(self, request: WireRequest) -> bool:
        """Forget the token that a server has refused; return whether the request had a token."""
        sent = next((text for name, text in request.headers.items() if name.lower() == "authorization"), "")
        self.invalidate_token(sent.removeprefix("Bearer "))
        return bool(sent)

    def get_token(self) -> str:
        """Return a valid access token, exchanged now if there is none. It may block for seconds.

        Raises:
            OAuthError: the token service refused the subject token.
            APIConnectionError, APITimeoutError: the service did not answer.
            OpenAIError: its answer, or the subject token, is invalid.
            SubjectTokenProviderError: a provider of :mod:`specclient.auth` read no subject token.
        """
        held, now = self._token, time.monotonic()
        if held is not None and now < held.refresh_at:
            return held.value
        lock = self._lock
        if not lock.acquire(blocking=held is None or now >= held.expires_at):
            assert held is not None
            return held.value  # another thread renews it
        try:
            held = self._token
            if held is None or time.monotonic() >= held.refresh_at:
                self._token = held = self._exchanged()
            return held.value
        finally:
            lock.release()

    async def get_token_async(self) -> str:
        """Return a valid access token; an exchange runs in a thread. Raises as :meth:`get_token`."""
        held = self._token
        if held is not None and time.monotonic() < held.refresh_at:
            return held.value
        with import_lock:
            import anyio.to_thread  # noqa: PLC0415 - only for an exchange

        return await anyio.to_thread.run_sync(self.get_token, abandon_on_cancel=True)

    def invalidate_token(self, token: str | None = None) -> None:
        """Forget the token if it is ``token``, or whichever it is."""
        held = self._token
        if held is not None and token in (None, held.value):
            self._token = None

    def _exchanged(self) -> AccessToken:
        started = time.monotonic()
        status, content, response = post_json(
            self.token_exchange_url, self._exchange_body(), timeout_s=_EXCHANGE_S
        )
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if status in _REFUSED:
            raise OAuthError(response=response, body=body)
        if not 200 <= status < 300:
            raise OpenAIError(f"Token exchange failed with status {status}")
        if not content:
            raise OpenAIError("Token exchange succeeded but response body was empty")
        if not isinstance(body, dict):
            raise OpenAIError("Token exchange succeeded but response body was not a JSON object")
        token, life = body.get("access_token"), body.get("expires_in")
        if not isinstance(token, str) or not (token.isascii() and token.isprintable() and token):
            raise OpenAIError("Token exchange response did not include a valid access_token")
        if isinstance(life, bool) or not isinstance(life, (int, float)) or not 0 < life < math.inf:
            raise OpenAIError("Token exchange response did not include a valid expires_in")
        return self._token_of(token, life, started)

    def _token_of(self, token: str, life: float, started: float) -> AccessToken:
        """Return a token that is valid for ``life`` seconds from ``started`` on, by the monotonic clock."""
        buffer = min(self.workload_identity.get("refresh_buffer_seconds", _REFRESH_BUFFER_S), life / 2)
        return AccessToken(token, started + life, started + life - buffer)

    def _exchange_body(self) -> dict[str, str]:
        identity = self.workload_identity
        kind = identity["provider"].get("token_type")
        subject: Any = identity["provider"]["get_token"]()
        if kind not in _TOKEN_TYPES:
            raise OpenAIError(f"Unsupported token type: {kind!r}. Supported types: {', '.join(_TOKEN_TYPES)}")
        if not subject:
            raise OpenAIError("The workload identity provider returned an empty subject token")
        if not isinstance(subject, str):
            raise OpenAIError(
                f"The workload identity provider returned a {type(subject).__name__}; `get_token` must be a "
                "plain function that returns a string"
            )
        return {
            "grant_type": _GRANT,
            "subject_token": subject,
            "subject_token_type": _TOKEN_TYPES[kind],
            "identity_provider_id": identity["identity_provider_id"],
            "service_account_id": identity["service_account_id"],
        }
