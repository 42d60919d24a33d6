"""The settings that follow from a Bedrock client's options and environment, as in the `openai` package.

https://docs.aws.amazon.com/bedrock/latest/userguide/bedrock-mantle.html. A request carries a Bedrock API key
as a bearer token, or a signature made with AWS credentials.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from specclient.errors import CredentialsError, OpenAIError
from specclient.providers.bedrock.regions import (
    BedrockApi,
    environment_region,
    is_region,
    mantle_url,
    place_of,
    region_in,
    runtime_url,
)
from specclient.providers.bedrock.signing import AWSAuthorizer, AWSCredentials, CredentialsProvider
from specclient.runtime.forks import import_lock
from specclient.types.wire import WireRequest

BedrockTokenProvider = Callable[[], str | Awaitable[str]]

_KEY = "AWS_BEARER_TOKEN_BEDROCK"
_ADDRESS = "AWS_BEDROCK_BASE_URL"
#: The options with credentials; only one kind of them may be given.
_BEARER = ("api_key", "bedrock_token_provider")
_STATIC = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
CREDENTIAL_OPTIONS = (*_BEARER, *_STATIC, "aws_profile", "aws_credentials_provider")
_AMBIGUOUS = (
    "Bedrock authentication is ambiguous. Configure exactly one explicit mode: bearer credential, static AWS "
    "credentials, profile, or credential provider."
)
_NO_REGION = "Bedrock requires an AWS region. Pass `aws_region`, or set `AWS_REGION` or `AWS_DEFAULT_REGION`."
_RESPONSES = re.compile(r"/responses(?:/.*)?$")


@dataclass(frozen=True, slots=True)
class BedrockSettings:
    """The address of a Bedrock client, and the authorizer of its requests.

    Attributes:
        base_url: the URL of the API.
        region: the region of requests; None if neither the settings nor the URL name one.
        authorizer: adds the token or the signature.
        api_key: the bearer token that was given, or that of the environment; empty for none.
        follows_region: whether the URL is AWS's own for the region.
    """

    base_url: str
    region: str | None
    authorizer: Any
    api_key: str = field(repr=False)
    follows_region: bool


def bedrock_settings(given: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> BedrockSettings:
    """Return the settings for a client's options.

    Args:
        given: ``api_key``, ``bedrock_token_provider``, ``aws_…`` and ``base_url``.
        env: ``AWS_BEARER_TOKEN_BEDROCK`` is used if no credentials are given, ``AWS_BEDROCK_BASE_URL``
            without a URL, ``AWS_REGION`` or ``AWS_DEFAULT_REGION`` without a region.

    Raises:
        OpenAIError: options contradict each other or are incomplete, or no region is known.
    """
    key, source = given.get("api_key"), given.get("bedrock_token_provider")
    _check_bearer(given)
    if key is None and source is None and not any(given.get(name) is not None for name in CREDENTIAL_OPTIONS):
        key = env.get(_KEY) or None
    base_url, follows_region = _address(given.get("base_url"), env)
    region = _checked_region(given.get("aws_region"))
    credentials = _aws_credentials(given)
    if key is not None and not key.strip():
        raise OpenAIError("The Bedrock bearer credential must not be empty.")
    is_bearer = key is not None or source is not None
    if region is None and not (base_url is not None and is_bearer):
        region = _checked_region(environment_region(env))
    api = _checked_address(base_url, region)
    if region is None and not is_bearer:
        region = _checked_region(_profile_region(credentials.profile, env))
        _checked_address(base_url, region)
    if base_url is None:
        if region is None:
            raise OpenAIError(_NO_REGION)
        base_url = runtime_url(region) + "/openai/v1" if api == "runtime" else mantle_url(region)
    authorizer: Any
    if is_bearer:
        authorizer = BedrockBearer(source or key, base_url)
    else:
        signer = AWSAuthorizer(
            region, service="bedrock" if api == "runtime" else "bedrock-mantle", credentials=credentials
        )
        authorizer = BedrockSigner(signer, base_url)
    place = place_of(urlsplit(base_url).hostname)
    shown = _given_text(given.get("aws_region")) or environment_region(env) or region
    return BedrockSettings(
        base_url, shown or (None if place is None else place[1]), authorizer, key or "", follows_region
    )


def _check_bearer(given: Mapping[str, Any]) -> None:
    key, source = given.get("api_key"), given.get("bedrock_token_provider")
    if callable(key):
        raise OpenAIError("Pass refreshable Bedrock credentials via `bedrock_token_provider`, not `api_key`.")
    if key == "":
        raise OpenAIError("The `api_key` argument must not be empty.")
    is_aws = any(given.get(name) is not None for name in CREDENTIAL_OPTIONS if name not in _BEARER)
    if (key is not None) + (source is not None) + is_aws > 1:
        raise OpenAIError(_AMBIGUOUS)


def _given_text(value: Any) -> str | None:
    return (value.strip() or None) if isinstance(value, str) else None


def _checked_region(region: str | None) -> str | None:
    if region is None:
        return None
    region = region.strip()
    if not region:
        raise OpenAIError("The Bedrock AWS `region` must not be empty.")
    if not is_region(region):
        raise OpenAIError(
            "The Bedrock AWS `region` is invalid. Use a standard AWS region such as `us-east-1`."
        )
    return region


def _address(base_url: Any, env: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return the configured URL, or None, and whether the URL follows from the region."""
    url = None if base_url is None else str(base_url)
    if url is None:
        url = env.get(_ADDRESS, "").strip() or None
        return (None if url is None else _normal_url(url)), url is None
    return (None, True) if not url.strip() else (_normal_url(url), False)


def _normal_url(url: str) -> str:
    """Return a URL without the path of one of the API's methods, as AWS's console shows it."""
    parts = urlsplit(url)
    path = _RESPONSES.sub("", parts.path.rstrip("/"))
    return urlunsplit(parts._replace(path=path or "/"))


def _aws_credentials(given: Mapping[str, Any]) -> AWSCredentials:
    key, secret, token = (given.get(name) for name in _STATIC)
    profile = given.get("aws_profile")
    if profile is not None and not profile.strip():
        raise OpenAIError("The Bedrock AWS `profile` must not be empty.")
    if (key is None) != (secret is None) or (token is not None and key is None):
        raise OpenAIError(
            "Static AWS credentials require both `access_key_id` and `secret_access_key`. A `session_token` "
            "may only be used with both."
        )
    if key is not None and not (key.strip() and str(secret).strip()):
        raise OpenAIError(
            "Static AWS credentials require non-empty `access_key_id` and `secret_access_key` values."
        )
    if token is not None and not token.strip():
        raise OpenAIError("A static AWS `session_token` must not be empty when provided.")
    source: CredentialsProvider | None = given.get("aws_credentials_provider")
    if (key is not None) + (profile is not None) + (source is not None) > 1:
        raise OpenAIError(
            "Bedrock authentication is ambiguous. Configure exactly one explicit AWS mode: static "
            "credentials, profile, or credential provider."
        )
    return AWSCredentials(
        access_key=key,
        secret_key=secret,
        session_token=token,
        provider=source,
        profile=None if profile is None else profile.strip(),
    )


def _checked_address(base_url: str | None, region: str | None) -> BedrockApi:
    """Return the API at a URL, after checks of a URL of AWS."""
    parts = urlsplit(base_url or "")
    place = place_of(parts.hostname)
    if place is None:
        return "mantle"
    if parts.scheme != "https":
        raise OpenAIError("Canonical Amazon Bedrock endpoints require HTTPS.")
    if region is not None and place[1] != region:
        raise OpenAIError(
            f"The Bedrock endpoint region `{place[1]}` does not match the configured AWS region `{region}`."
        )
    return place[0]


def _profile_region(profile: str | None, env: Mapping[str, str]) -> str:
    """Return the region of the AWS profile.

    Raises:
        OpenAIError: the profile has no region, or botocore, which signs requests, is not installed.
    """
    try:
        with import_lock:
            import botocore.session  # noqa: F401, PLC0415 - 0.1 s, where no region is set
    except ImportError:
        raise OpenAIError(
            "Bedrock AWS authentication requires optional AWS dependencies. Install them with `pip install "
            "'specclient[bedrock]'` and try again."
        ) from None
    region = region_in(env, profile)
    if region is None:
        raise OpenAIError(_NO_REGION)
    return region


@dataclass(frozen=True, slots=True)
class BedrockBearer:
    """Adds a Bedrock API key to requests; an :class:`specclient.providers.endpoint.Authorizer`.

    Attributes:
        source: the key, or a function that returns it and is called for each attempt.
        base_url: a URL; requests to other origins are refused, so that they do not get the key.
    """

    source: Any = field(repr=False)
    base_url: str

    @property
    def lacks(self) -> None:
        """None: no setting is missing."""
        return

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with the key.

        Raises:
            OpenAIError: the request has an ``Authorization`` header or another origin, or the function
                returns no key.
        """
        _check_own(request, self.base_url, "authenticate")
        return request.with_headers({"authorization": f"Bearer {await self._token()}"})

    async def _token(self) -> str:
        if isinstance(self.source, str):
            return self.source
        failure: OpenAIError
        try:
            token = await _result_of(self.source)
        except OpenAIError:
            raise
        except Exception as error:  # noqa: BLE001 - of the caller's function
            failure = CredentialsError("Failed to resolve a bearer credential for Bedrock.")
            failure.__cause__ = error
        else:
            if isinstance(token, str) and token.strip():
                return token
            failure = OpenAIError("The Bedrock bearer credential provider must return a non-empty string.")
        raise failure


@dataclass(frozen=True, slots=True)
class BedrockSigner:
    """Signs requests to one origin; an :class:`specclient.providers.endpoint.Authorizer`.

    Attributes:
        signer: makes the signatures.
        base_url: a URL; requests to other origins are refused.
    """

    signer: AWSAuthorizer
    base_url: str

    @property
    def lacks(self) -> str | None:
        """The settings missing for an attempt; None if one may succeed."""
        return self.signer.lacks

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with its signature.

        Raises:
            OpenAIError: the request has an ``Authorization`` header or another origin, or follows redirects.
            CredentialsError: there are no credentials, or they cannot be refreshed.
        """
        if request.follow_redirects:
            raise OpenAIError(
                "Bedrock SigV4 authentication does not support automatic redirects. Send a new request to "
                "the redirect target so it can be signed again."
            )
        _check_own(request, self.base_url, "sign")
        return await self.signer(request)


def _check_own(request: WireRequest, base_url: str, verb: str) -> None:
    if any(name.lower() == "authorization" for name in request.headers):
        raise OpenAIError(
            "Bedrock provider authentication cannot be combined with a custom `Authorization` header."
        )
    if urlsplit(request.url)[:2] != urlsplit(base_url)[:2]:
        raise OpenAIError(
            f"Refusing to {verb} a Bedrock request for an origin other than the configured provider URL."
        )


async def _result_of(source: Any) -> Any:
    """Call a function, in a thread unless it is a coroutine function, and return its awaited result."""
    if inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(type(source).__call__):
        return await source()
    with import_lock:
        import anyio.to_thread  # noqa: PLC0415 - only for such functions

    found = await anyio.to_thread.run_sync(source, abandon_on_cancel=True)
    return await found if inspect.isawaitable(found) else found
