"""Access tokens of Google credentials, by google-auth.

All kinds that google-auth reads are supported: application default credentials, the keys of service accounts,
workload identity federation, impersonation, and the metadata server of a machine in Google Cloud
(https://cloud.google.com/docs/authentication/application-default-credentials).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from specclient.errors import CredentialsError
from specclient.runtime.forks import import_lock, register_fork_reset

_log = logging.getLogger("specclient")

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
#: Seconds before its expiry from which a token is renewed, and up to which it is used meanwhile.
RENEW_BEFORE_S: Final = 300.0
USED_UNTIL_S: Final = 30.0
#: Seconds after which a token without an expiry is read again, and a renewal is tried again after a failure.
_REREAD_S: Final = 300.0
_NEXT_TRY_S: Final = 30.0
#: Seconds of one request to a token service or the metadata server, and of a whole renewal.
_REQUEST_S: Final = 10.0
_RENEWAL_S: Final = 60.0

_LONGEST_REASON = 300
#: Texts in a library's error that may be a token, an assertion or a key.
_SECRET = re.compile(r"ya29\.[\w.~+/-]+|eyJ[\w-]+\.[\w.-]+|[\w+=-]{32,}")
_SIGN_IN = (
    "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to the file of a "
    "service account or of a workload identity, or give credentials under [providers.vertex] in "
    "specclient.toml"
)


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    """A token, and the projects of its credentials.

    Attributes:
        token: the access token.
        expires_at: seconds since the epoch; None for a token without an expiry.
        read_at: when it was obtained, likewise.
        project: the project of the credentials; None if they have none.
        quota_project: the project whose quota is used, for ``x-goog-user-project``; None for the default.
    """

    token: str = field(repr=False)
    expires_at: float | None
    read_at: float
    project: str | None = None
    quota_project: str | None = None

    def lasts(self, now: float, margin_s: float) -> bool:
        """Return whether the token is valid for longer than ``margin_s`` seconds."""
        if self.expires_at is None:
            return now < self.read_at + _REREAD_S
        return now < self.expires_at - margin_s


class GoogleCredentials:
    """Keeps the token of some credentials and renews it, once for all callers, in a thread of its own.

    A token is renewed in the last minutes before its expiry, while calls go on with it. Only a call that has
    no valid token waits. May be used from several event loops and threads.

    Args:
        source: the path of a file with credentials, or credentials of google-auth; None for application
            default credentials.
        renewal_s: the longest wait for a token, in seconds.
        now: returns seconds since the epoch.
    """

    def __init__(
        self, source: Any = None, *, renewal_s: float = _RENEWAL_S, now: Callable[[], float] = time.time
    ) -> None:
        self._source = source
        self._renewal_s = renewal_s
        self._now = now
        self._lock = threading.Lock()
        self._loaded: tuple[Any, str | None] | None = None
        self._access: GoogleAccess | None = None
        self._renewal: Future[GoogleAccess | CredentialsError] | None = None
        self._next_try = 0.0
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget a renewal that a thread of the parent process makes."""
        self._lock, self._renewal = threading.Lock(), None

    async def access(self) -> GoogleAccess:
        """Return a valid token.

        Raises:
            CredentialsError: the credentials are missing, expired or refused, or the token service does not
                answer.
        """
        known, now = self._access, self._now()
        if known is not None and known.lasts(now, RENEW_BEFORE_S):
            return known
        if known is not None and known.lasts(now, USED_UNTIL_S):
            if now >= self._next_try:
                self._renew()
            return known
        limit = asyncio.timeout(self._renewal_s)
        try:
            async with limit:
                found = await asyncio.shield(asyncio.wrap_future(self._renew()))
        except TimeoutError:
            if not limit.expired():
                raise
            found = CredentialsError(
                f"Google's token service, or the metadata server, gave no access token within "
                f"{self._renewal_s:g} s; check the network, or {_SIGN_IN}"
            )
        if isinstance(found, CredentialsError):
            raise copy.copy(found)  # each caller gets its own, with its own traceback
        return found

    def _renew(self) -> Future[GoogleAccess | CredentialsError]:
        """Start a renewal unless one is running; return its outcome."""
        with self._lock:
            if self._renewal is None:
                self._renewal = Future()
                work = threading.Thread(
                    target=self._run, args=(self._renewal,), name="specclient-google-auth", daemon=True
                )
                work.start()
            return self._renewal

    def _run(self, outcome: Future[GoogleAccess | CredentialsError]) -> None:
        found: GoogleAccess | CredentialsError
        try:
            found = self._obtain()
        except Exception as error:  # noqa: BLE001 - raised in the callers, without the secrets that it may hold
            found = _credentials_error(error)
        with self._lock:
            self._renewal = None
            if isinstance(found, GoogleAccess):
                self._access = found
            else:
                self._next_try = self._now() + _NEXT_TRY_S
        if isinstance(found, CredentialsError):
            _log.debug("no new Google access token: %s", found)
        outcome.set_result(found)

    def _obtain(self) -> GoogleAccess:
        """Return a token of the credentials; a new one if theirs is about to expire."""
        request = _token_requests()
        if self._loaded is None:
            self._loaded = _load(self._source, request)
        credentials, project = self._loaded
        expires_at, now = _expiry_of(credentials), self._now()
        if not credentials.token or (expires_at is not None and now >= expires_at - RENEW_BEFORE_S):
            credentials.refresh(request)
        if not isinstance(credentials.token, str) or not credentials.token:
            raise TypeError("the credentials gave no token")
        return GoogleAccess(
            credentials.token,
            _expiry_of(credentials),
            self._now(),
            project or getattr(credentials, "project_id", None),
            getattr(credentials, "quota_project_id", None),
        )


@functools.lru_cache(maxsize=64)
def shared_credentials(source: Any, default_file: str | None = None) -> GoogleCredentials:  # noqa: ARG001
    """Return the credentials of a source, which all clients of the process share, with their token.

    Args:
        source: see :class:`GoogleCredentials`.
        default_file: the file of the application default credentials, if the environment names one; another
            file has other credentials.
    """
    return GoogleCredentials(source)


def _load(source: Any, request: Any) -> tuple[Any, str | None]:
    """Return credentials of google-auth, and their project."""
    import google.auth  # noqa: PLC0415 - optional, and takes a while
    from google.auth import credentials as kinds  # noqa: PLC0415

    if source is None:
        found: tuple[Any, str | None] = google.auth.default(scopes=SCOPES, request=request)
        return found
    if isinstance(source, str):
        return _load_file(source)
    with_scopes: Any = kinds.with_scopes_if_required
    return with_scopes(source, list(SCOPES)), None


def _load_file(path: str) -> tuple[Any, str | None]:
    """Return the credentials in a file, and their project.

    google-auth's function for files of any kind is deprecated, because it may load more than a program means
    to accept. Here the user names the file.
    """
    try:
        info = json.loads(Path(path).expanduser().read_bytes())
        kind = info["type"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON object with a type"
        raise _UnusableFileError(f"{path}: {reason}") from None
    if kind == "external_account":
        source = info.get("credential_source") or {}
        kind = "aws" if "environment_id" in source else "executable" if "executable" in source else kind
    if kind not in _FILE_KINDS:
        raise _UnusableFileError(f"{path} has the type {kind!r}; it must be one of {', '.join(_FILE_KINDS)}")
    module, maker = _FILE_KINDS[kind]
    make = getattr(importlib.import_module(module).Credentials, maker)
    try:
        found = make(info, scopes=list(SCOPES))
    except (ValueError, KeyError, TypeError) as error:
        raise _UnusableFileError(f"{path}: {type(error).__name__}, {_reason(error)}") from None
    return found, info.get("project_id")


class _UnusableFileError(Exception):
    """A file holds no credentials. The message names it and the reason."""


#: For each ``type`` of a file: the module of google-auth and the constructor.
_FILE_KINDS: Final = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "external_account": ("google.auth.identity_pool", "from_info"),
    "aws": ("google.auth.aws", "from_info"),
    "executable": ("google.auth.pluggable", "from_info"),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info"),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
    ),
}


def _token_requests() -> Any:
    """Return the function by which google-auth sends requests, with a time limit for each."""
    with import_lock:
        from google.auth.transport.requests import Request  # noqa: PLC0415 - optional, and takes a while

    send: Any = Request()

    def limited(*args: Any, timeout: float | None = None, **options: Any) -> Any:
        return send(*args, timeout=min(timeout or _REQUEST_S, _REQUEST_S), **options)

    return limited


def _expiry_of(credentials: Any) -> float | None:
    """Return when the token of credentials expires, in seconds since the epoch; None if it does not."""
    expiry = getattr(credentials, "expiry", None)
    return None if expiry is None else float(expiry.replace(tzinfo=UTC).timestamp())  # naive, in UTC


def _credentials_error(error: Exception) -> CredentialsError:
    """Return the error for a failure of google-auth: what failed, why, and what to do; without secrets."""
    if isinstance(error, ImportError):
        return CredentialsError(
            f"Google credentials need google-auth ({error}): pip install 'specclient[vertex]', or give "
            'an access token as api_key under [providers.vertex], with key_header = "authorization"'
        )
    kinds = {kind.__name__ for kind in type(error).__mro__}
    reason = _reason(error)
    if "RefreshError" in kinds:
        text = f"Google refused a new access token ({reason}); the credentials may be expired or revoked"
    elif "TransportError" in kinds or "TimeoutError" in kinds:
        text = f"Google's token service, or the metadata server, cannot be reached ({reason})"
    elif isinstance(error, _UnusableFileError):
        text = f"there are no usable Google credentials ({error})"
    elif "DefaultCredentialsError" in kinds:
        text = f"there are no usable Google credentials ({reason})"
    else:
        text = f"the Google credentials cannot be used ({type(error).__name__}: {reason})"
    return CredentialsError(f"{text}; {_SIGN_IN}")


def _reason(error: Exception) -> str:
    """Return the text of a library's error in one line, with possible secrets replaced."""
    first = error.args[0] if error.args else ""
    text = _SECRET.sub("[redacted]", " ".join(str(first).split()))
    return text[:_LONGEST_REASON].rstrip(".") or type(error).__name__
