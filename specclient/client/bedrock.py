"""Clients of Amazon Bedrock's OpenAI-compatible API: `BedrockOpenAI` and `AsyncBedrockOpenAI`.

Every client serves the models of Bedrock's own API, Converse, as ``bedrock/MODEL``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

from specclient.client.async_client import AsyncOpenAI
from specclient.client.base_client import BaseClient
from specclient.client.bedrock_settings import (
    CREDENTIAL_OPTIONS,
    BedrockSettings,
    BedrockTokenProvider,
    bedrock_settings,
)
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options, with_option_names
from specclient.client.sync_client import OpenAI
from specclient.errors import OpenAIError
from specclient.providers.bedrock.signing import CredentialsProvider
from specclient.types.params import is_given


class BedrockOptions(ClientOptions, total=False):
    """Options of a Bedrock client, in addition to :class:`specclient.client.options.ClientOptions`.

    A name in capitals is the environment variable with the default.

    Attributes:
        bedrock_token_provider: a function that returns a Bedrock API key; called before each attempt.
        aws_region: the region (``AWS_REGION``, ``AWS_DEFAULT_REGION``, or that of the profile).
        aws_profile: a profile of the shared configuration and credentials files.
        aws_access_key_id, aws_secret_access_key, aws_session_token: static credentials.
        aws_credentials_provider: a function that returns credentials of botocore; called before each attempt.

    At most one kind of credentials may be given; ``api_key`` is a Bedrock API key. Without any, the key of
    ``AWS_BEARER_TOKEN_BEDROCK`` is used, or else the credentials that botocore finds (extra ``bedrock``).
    ``base_url`` defaults to ``AWS_BEDROCK_BASE_URL``, or else to AWS's address in the region.
    """

    bedrock_token_provider: BedrockTokenProvider | None
    aws_region: str | None
    aws_profile: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    aws_session_token: str | None
    aws_credentials_provider: CredentialsProvider | None


_OWN = (*CREDENTIAL_OPTIONS, "aws_region", "base_url")
#: Options that OpenAI's clients have and Bedrock's have not.
_REFUSED = ("admin_api_key", "data_residency", "workload_identity", "provider")


class _BedrockClient(BaseClient):
    """The common part of both clients: Bedrock's own options, and the settings that follow from them.

    Raises:
        OpenAIError: credentials contradict each other or are incomplete, or no region is known.
    """

    _bedrock: dict[str, Any]  # the options of _OWN that were given
    _state: BedrockSettings

    @with_option_names(BedrockOptions)
    def __init__(self, **options: Unpack[BedrockOptions]) -> None:
        given = {name: value for name, value in options.items() if is_given(value)}
        if unknown := [name for name in _REFUSED if name in given]:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {unknown[0]!r}")
        rest = {name: value for name, value in given.items() if name not in _OWN}
        checked_options(type(self), rest)
        self._bedrock = {name: given[name] for name in _OWN if given.get(name) is not None}
        self._configure(rest, None)

    @property
    def api_key(self) -> str:
        """The Bedrock API key; empty if requests are signed or a function returns the key."""
        return self._state.api_key

    @api_key.setter
    def api_key(self, value: str | None) -> None:
        self._reset(api_key=value)

    @property
    def aws_region(self) -> str | None:
        """The region of requests; None if neither the settings nor the URL name one."""
        return self._state.region

    @aws_region.setter
    def aws_region(self, value: str | None) -> None:
        self._reset(aws_region=value)

    @property
    def base_url(self) -> Any:
        """The URL of the API, as an ``httpx.URL`` that ends with a slash."""
        return super().base_url

    @base_url.setter
    def base_url(self, value: Any) -> None:
        self._reset(base_url=value)

    @property
    def auth_headers(self) -> dict[str, str]:
        """Empty, because each request is authorised separately."""
        return {}

    def copy(self, **options: Any) -> Self:
        """Return a client with changed options; see :meth:`specclient.OpenAI.copy`.

        A new credential replaces the old one, whichever it is.
        """
        _check_copy(type(self), options)
        return super().copy(**options)

    with_options = copy

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        copied = type(self).__new__(type(self))
        own = {name: changes[name] for name in _OWN if changes.get(name) is not None}
        copied._bedrock = _with_changes(self._bedrock, self._state, own)
        rest = {name: value for name, value in changes.items() if name not in (*_OWN, *_REFUSED)}
        checked_options(type(self), rest)
        kept = {name: value for name, value in self.core.options.items() if name not in _OWN}
        copied._configure({**kept, **rest}, self.core)
        return copied

    def _configure(self, options: Mapping[str, Any], source: ClientCore | None) -> None:
        """Derive the settings from Bedrock's options, and make the core."""
        self._state = state = bedrock_settings(self._bedrock)
        core_options = {**options, "base_url": state.base_url, "api_key": None}
        self._begin(ClientCore(core_options, endpoint=_endpoint(state), source=source))

    def _reset(self, **changes: Any) -> None:
        """Change options for all later calls."""
        bedrock = _with_changes(self._bedrock, self._state, changes)
        state = bedrock_settings(bedrock)
        self._bedrock, self._state = bedrock, state
        self.core.endpoint = _endpoint(state)
        self.core.set("base_url", state.base_url)


class BedrockOpenAI(_BedrockClient, OpenAI):
    """The synchronous client of Bedrock's OpenAI-compatible API; see :class:`BedrockOptions`.

    Raises:
        OpenAIError: credentials contradict each other or are incomplete, or no region is known.
    """


class AsyncBedrockOpenAI(_BedrockClient, AsyncOpenAI):
    """The asynchronous client of Bedrock's OpenAI-compatible API; see :class:`BedrockOpenAI`."""


def _endpoint(state: BedrockSettings) -> dict[str, Any]:
    """Return the fields of the default endpoint that have no option."""
    return {
        "dialect": "openai",
        "key": None,
        "key_source": None,
        "admin_key": None,
        "key_header": "authorization",
        "key_required": True,
        "authorizer": state.authorizer,
        "authorizes_all": True,
        "price_provider": "aws",
        "requests_usage": True,
    }


def _with_changes(
    bedrock: Mapping[str, Any], state: BedrockSettings, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options with changes: a new credential replaces the old one, whichever it is."""
    changed = dict(bedrock)
    if not any(name in changed for name in CREDENTIAL_OPTIONS) and state.api_key:
        changed["api_key"] = state.api_key  # the environment's when the client was made
    if any(name in changes for name in CREDENTIAL_OPTIONS):
        changed = {name: value for name, value in changed.items() if name not in CREDENTIAL_OPTIONS}
    if "aws_region" not in changed and not ("aws_profile" in changes or "base_url" in changes):
        changed |= {"aws_region": state.region} if state.region is not None else {}
    if "base_url" not in changes:
        changed["base_url"] = "" if state.follows_region else state.base_url
    return {**changed, **changes}


def _check_copy(cls: type, options: Mapping[str, Any]) -> None:
    """Raise for options that the `openai` package's Bedrock clients refuse in copies."""
    given = {name for name, value in options.items() if is_given(value) and value is not None}
    if "data_residency" in given:
        raise OpenAIError("`data_residency` is only supported by OpenAI clients")
    if callable(options.get("api_key")):
        raise OpenAIError("Pass refreshable Bedrock credentials via `bedrock_token_provider`, not `api_key`.")
    if "provider" in given:
        raise OpenAIError(f"Configure `provider` on `OpenAI`, not on `{cls.__name__}.with_options()`.")
    if not given.isdisjoint(("admin_api_key", "workload_identity")):
        raise OpenAIError(
            f"{cls.__name__} only supports Bedrock bearer token or AWS credential authentication."
        )
