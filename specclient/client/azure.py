"""Clients of an Azure OpenAI resource: `AzureOpenAI` and `AsyncAzureOpenAI`.

See https://learn.microsoft.com/azure/ai-services/openai/reference for the paths and the headers.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar, Unpack

from pydantic import SecretStr

from specclient.client.async_client import AsyncOpenAI
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options, with_option_names
from specclient.client.sync_client import OpenAI
from specclient.errors import OpenAIError
from specclient.providers.presets.registry import preset
from specclient.types.params import is_given

TokenProvider = Callable[[], str | Awaitable[str]]


class AzureOptions(ClientOptions, total=False):
    """Options of an Azure client, in addition to :class:`specclient.client.options.ClientOptions`.

    A name in capitals is the environment variable with the default.

    Attributes:
        azure_endpoint: ``https://NAME.openai.azure.com`` (``AZURE_OPENAI_ENDPOINT``), or ``base_url``.
        azure_deployment: the deployment that serves all calls, whatever their model.
        api_version: the version of the API (``OPENAI_API_VERSION``); required.
        azure_ad_token: a Microsoft Entra ID token (``AZURE_OPENAI_AD_TOKEN``).
        azure_ad_token_provider: a function that returns a token; called before each attempt.

    Exactly one of ``api_key`` (``AZURE_OPENAI_API_KEY``), ``azure_ad_token`` and ``azure_ad_token_provider``
    is required.
    """

    azure_endpoint: str | None
    azure_deployment: str | None
    api_version: str | None
    azure_ad_token: str | None
    azure_ad_token_provider: TokenProvider | None


class AzureOpenAI(OpenAI):
    """The synchronous client of an Azure OpenAI resource; see :class:`AzureOptions`.

    Raises:
        OpenAIError: there is no key or token, or more than one.
        ValueError: there is no API version or no endpoint.
    """

    official_name = "AzureOpenAI"
    _azure: Mapping[str, Any]

    @with_option_names(AzureOptions)
    def __init__(self, **options: Unpack[AzureOptions]) -> None:
        self._azure = _azure_options(options)
        self._begin(_core(type(self), options))

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        return _copied(self, changes)


class AsyncAzureOpenAI(AsyncOpenAI):
    """The asynchronous client of an Azure OpenAI resource; see :class:`AzureOpenAI`."""

    official_name = "AsyncAzureOpenAI"
    _azure: Mapping[str, Any]

    @with_option_names(AzureOptions)
    def __init__(self, **options: Unpack[AzureOptions]) -> None:
        self._azure = _azure_options(options)
        self._begin(_core(type(self), options))

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        return _copied(self, changes)


class MutuallyExclusiveAuthError(OpenAIError):
    """More than one Azure credential was given."""


_Client = TypeVar("_Client", bound=AzureOpenAI | AsyncAzureOpenAI)
_OWN = frozenset(AzureOptions.__annotations__) - frozenset(ClientOptions.__annotations__)
_ENDPOINT_OPTIONS = frozenset({"azure_endpoint", "azure_deployment"})
_CREDENTIALS = frozenset({"api_key", "azure_ad_token", "azure_ad_token_provider"})


def _azure_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return Azure's own options and the key, for copies of the client."""
    return {name: options[name] for name in (*_OWN, "api_key") if options.get(name) is not None}


def _copied(client: _Client, changes: Mapping[str, Any]) -> _Client:
    """Return a copy of a client with changed options."""
    azure = dict(client._azure)
    if _CREDENTIALS & changes.keys():  # a new credential replaces the old one, whichever it is
        azure = {name: value for name, value in azure.items() if name not in _CREDENTIALS}
    if "base_url" in changes:
        azure = {name: value for name, value in azure.items() if name not in _ENDPOINT_OPTIONS}
    rest = {name: value for name, value in client.core.options.items() if name != "api_key"}
    copied = type(client).__new__(type(client))
    options = {**rest, **azure, **changes}
    if azure.get("azure_endpoint"):
        options.pop("base_url", None)
    copied._azure = _azure_options(options)
    copied._begin(_core(type(client), options, client.core))
    return copied


def _core(cls: type, options: Mapping[str, Any], source: ClientCore | None = None) -> ClientCore:
    given = {name: value for name, value in options.items() if is_given(value)}
    checked_options(cls, {name: value for name, value in given.items() if name not in _OWN})
    if given.get("workload_identity") is not None:
        raise TypeError(f"{cls.__name__}() got an unexpected keyword argument 'workload_identity'")
    endpoint = {
        **_credentials(given),
        "deployments": True,
        "price_provider": "azure",
        "requests_usage": True,
        "capabilities": preset("azure").capabilities,
    }
    version = given.get("api_version") or os.environ.get("OPENAI_API_VERSION")
    if version is None:
        raise ValueError(
            "Must provide either the `api_version` argument or the `OPENAI_API_VERSION` environment variable"
        )
    base_url = _base_url(given)
    if "/deployments" in base_url:
        endpoint["deployments"] = False  # base_url already names the deployment
    elif given.get("azure_deployment"):
        endpoint["deployment"] = given["azure_deployment"]
    client_options = {name: value for name, value in given.items() if name not in _OWN and name != "api_key"}
    client_options["base_url"] = base_url
    client_options["default_query"] = {**(given.get("default_query") or {}), "api-version": version}
    return ClientCore(client_options, endpoint=endpoint, source=source)


def _credentials(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an endpoint that authenticate requests."""
    chosen = [name for name in sorted(_CREDENTIALS) if given.get(name) is not None]
    if len(chosen) > 1:
        raise MutuallyExclusiveAuthError(
            "The `api_key`, `azure_ad_token` and `azure_ad_token_provider` arguments are mutually exclusive; "
            f"{' and '.join(chosen)} were given, and only one can be"
        )
    key, token, source = (
        given.get(name) for name in ("api_key", "azure_ad_token", "azure_ad_token_provider")
    )
    if not chosen:
        token = os.environ.get("AZURE_OPENAI_AD_TOKEN")
        key = None if token else os.environ.get("AZURE_OPENAI_API_KEY")
    if not (key or token or source) and given.get("_enforce_credentials") is not False:
        raise OpenAIError(
            "Missing credentials. Please pass one of `api_key`, `azure_ad_token`, `azure_ad_token_provider`, "
            "or set the `AZURE_OPENAI_API_KEY` or `AZURE_OPENAI_AD_TOKEN` environment variable"
        )
    fields: dict[str, Any] = {
        "key": None,
        "key_source": None,
        "admin_key": None,
        "key_header": "authorization",
    }
    if source is not None:
        return {**fields, "key_source": source}
    if token:
        return {**fields, "key": SecretStr(token)}
    if callable(key):
        return {**fields, "key_source": key, "key_header": "api-key"}
    return {**fields, "key": SecretStr(str(key)), "key_header": "api-key"}


def _base_url(given: Mapping[str, Any]) -> str:
    endpoint, base_url = given.get("azure_endpoint"), given.get("base_url")
    if base_url is not None:
        if endpoint is not None:
            raise ValueError("base_url and azure_endpoint are mutually exclusive; leave one of them out")
        return str(base_url)
    endpoint = endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        raise ValueError(
            "Must provide one of the `base_url` or `azure_endpoint` arguments, or the "
            "`AZURE_OPENAI_ENDPOINT` environment variable"
        )
    return f"{str(endpoint).rstrip('/')}/openai"
