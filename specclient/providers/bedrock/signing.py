"""Requests signed for AWS (Signature Version 4) by botocore, with the credentials of its own chain.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html. botocore is imported when the first
request is signed. Its chain finds keys in the environment, profiles, roles, single sign-on, processes,
containers and machines, and refreshes those that expire.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from specclient.errors import ConfigurationError, CredentialsError, OpenAIError
from specclient.providers.bedrock.regions import region_of_url
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.types.wire import WireRequest

#: The service names in signatures: of the Converse API, and of Bedrock's OpenAI-compatible API.
ServiceName = Literal["bedrock", "bedrock-mantle"]
#: Returns credentials of botocore, or any object with ``access_key``, ``secret_key`` and ``token``.
CredentialsProvider = Callable[[], Any]

#: Headers that are part of a signature. Others may be added or changed on the way.
_SIGNED = frozenset({"content-type"})
_OWN = frozenset({"authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"})
#: Environment variables that let botocore find credentials.
_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_FILES = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
_VENDOR_FILE = Path("/sys/devices/virtual/dmi/id/sys_vendor")
_NONE_FOUND = (
    "no AWS credentials: set AWS_BEARER_TOKEN_BEDROCK to a Bedrock API key, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile of ~/.aws/config"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AWSCredentials:
    """The source of credentials: keys, a function, or else a profile of botocore's chain.

    Attributes:
        access_key, secret_key, session_token: static keys; None for none.
        provider: a function that is called for each signature; None for none.
        profile: a profile of the shared configuration; None for the one that the environment names.
    """

    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    provider: CredentialsProvider | None = field(default=None, repr=False)
    profile: str | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether the caller named credentials, rather than leaving the choice to botocore's chain."""
        return bool(self.access_key or self.provider or self.profile)


class AWSAuthorizer:
    """Signs requests to one service in one region; see :class:`specclient.providers.endpoint.Authorizer`.

    Two with the same arguments are equal, so that copies of a client share its rate limits.

    Args:
        region: the region in signatures if the URL names none; None then raises an error.
        service: the service in signatures.
        credentials: the source of the credentials.
        env: the environment, for :attr:`lacks` only; botocore reads the process's own.
    """

    def __init__(
        self,
        region: str | None,
        *,
        service: ServiceName = "bedrock",
        credentials: AWSCredentials | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._credentials = credentials or AWSCredentials()
        self._region = region
        self._service = service
        self._env = env
        self._lock = threading.Lock()
        self._found: Any = None  # credentials of botocore, which refresh themselves
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, and forget the credentials, whose own lock a thread of the parent may hold."""
        self._lock = threading.Lock()
        self._found = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._region!r}, service={self._service!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AWSAuthorizer) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self._region, self._service, self._credentials

    @property
    def lacks(self) -> str | None:
        """The missing settings, as far as variables and files show; None if an attempt may succeed."""
        if self._credentials.is_explicit or self._found is not None or _may_have_credentials(self._env):
            return None
        return _NONE_FOUND

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with its signature. Redirects are not followed, because it holds for one URL.

        Raises:
            CredentialsError: there are no credentials, or botocore cannot refresh them.
            ConfigurationError: botocore is not installed, or the region is unknown.
            OpenAIError: the body is not bytes, so that it cannot be signed.
        """
        if not self._is_ready():
            with import_lock:
                import anyio.to_thread  # noqa: PLC0415 - only where credentials are looked up

            keys = await anyio.to_thread.run_sync(self._frozen, abandon_on_cancel=True)
        else:
            keys = self._found.get_frozen_credentials()
        region = region_of_url(request.url) or self._region
        return signed(request, keys, service=self._service, region=region)

    def _is_ready(self) -> bool:
        """Return whether credentials are in memory and need no refresh, which reads files or the network."""
        if self._found is None or self._credentials.provider is not None:
            return False
        refresh_needed = getattr(self._found, "refresh_needed", None)
        return refresh_needed is None or not refresh_needed()

    def _frozen(self) -> Any:
        """Return the current credentials. Called in a thread: botocore may read files or the network."""
        failure: OpenAIError
        try:
            with import_lock:
                from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - takes 0.1 s
        except ImportError:
            raise _not_installed() from None
        try:
            with self._lock:
                found = self._find()
            if found is None:
                failure = CredentialsError(_NONE_FOUND)
            else:
                frozen = getattr(found, "get_frozen_credentials", None)
                return frozen() if callable(frozen) else found
        except OpenAIError:
            raise
        except (BotoCoreError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # The text of other exceptions may quote a file or an answer with keys.
            detail = f": {error}" if isinstance(error, BotoCoreError) else ""
            failure = CredentialsError(
                f"AWS credentials could not be read or refreshed ({type(error).__name__}{detail}). Check the "
                "AWS profile, environment variables or role of this machine; after `aws sso login` or `aws "
                "login` has expired, log in again."
            )
        raise failure

    def _find(self) -> Any:
        own = self._credentials
        if own.provider is not None:
            return own.provider()
        if self._found is None:
            with import_lock:
                from botocore.credentials import Credentials  # noqa: PLC0415 - as above
                from botocore.session import Session  # noqa: PLC0415

            if own.access_key is not None:
                self._found = Credentials(own.access_key, own.secret_key, own.session_token)
            else:
                self._found = Session(profile=own.profile).get_credentials()
        return self._found


def signed(request: WireRequest, keys: Any, *, service: str, region: str | None) -> WireRequest:
    """Return a request with the headers of its signature.

    Args:
        keys: an object with ``access_key``, ``secret_key`` and ``token``.
        service, region: as the signature names them.

    Raises:
        ConfigurationError: the region is unknown, or botocore is not installed.
        OpenAIError: the body is not bytes.
    """
    if region is None:
        raise ConfigurationError(
            "no AWS region: set AWS_REGION, or a region in the profile of ~/.aws/config, such as 'us-east-1'"
        )
    content = b"" if request.content is None else request.content
    if not isinstance(content, bytes) or request.files is not None or request.data is not None:
        raise OpenAIError(
            "a request to AWS is signed with its whole body, and this one is a form or is read while it is "
            "sent; pass bytes, or use a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK)"
        )
    try:
        with import_lock:
            from botocore.auth import SigV4Auth  # noqa: PLC0415 - takes 0.1 s
            from botocore.awsrequest import AWSRequest  # noqa: PLC0415
    except ImportError:
        raise _not_installed() from None
    names = {name.lower(): value for name, value in request.headers.items()}
    headers = {
        name: value
        for name, value in names.items()
        if name not in _OWN and (name in _SIGNED or name.startswith("x-amz-"))
    }
    headers["x-amz-content-sha256"] = hashlib.sha256(content).hexdigest()
    made = AWSRequest(method=request.method, url=request.url, data=content, headers=headers)
    SigV4Auth(keys, service, region).add_auth(made)
    added = {name.lower(): str(value) for name, value in made.headers.items() if name.lower() in _OWN}
    return replace(request.with_headers(added), follow_redirects=False)


def _may_have_credentials(env: Mapping[str, str]) -> bool:
    """Return whether botocore may find credentials, as far as variables and files show."""
    if any(env.get(name) for name in _VARIABLES):
        return True
    try:
        if any(Path(env.get(name) or usual).expanduser().is_file() for name, usual in _FILES):
            return True
        return env.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true" and _is_aws_machine()
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return False


def _is_aws_machine() -> bool:
    """Return whether this machine is one of AWS's, which may have a role (EC2, "Identify EC2 instances")."""
    try:
        return _VENDOR_FILE.read_text("latin-1").startswith("Amazon")
    except OSError:
        return False


def _not_installed() -> ConfigurationError:
    return ConfigurationError(
        "requests to AWS are signed by botocore, which is not installed; run pip install "
        "'specclient[bedrock]', or set AWS_BEARER_TOKEN_BEDROCK to a Bedrock API key"
    )
