"""Turn Azure's options into clients of an Azure OpenAI resource, sync and async.

See https://learn.microsoft.com/azure/ai-services/openai/reference for the paths and the headers.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar, Unpack

from pydantic import SecretStr

from specclient.client.async_client import AsyncOpenAI
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options
from specclient.client.sync_client import OpenAI
from specclient.errors import OpenAIError
from specclient.providers.presets.registry import preset
from specclient.types.params import NotGiven

TokenProvider = Callable[[], str | Awaitable[str]]


class AzureOptions(ClientOptions, total=False):
    """What a client of Azure takes beside :class:`specclient.client.options.ClientOptions`.

    ``azure_endpoint`` (``https://NAME.openai.azure.com``; ``AZURE_OPENAI_ENDPOINT``) or ``base_url``;
    ``api_version`` (``OPENAI_API_VERSION``); one of ``api_key`` (``AZURE_OPENAI_API_KEY``),
    ``azure_ad_token`` (``AZURE_OPENAI_AD_TOKEN``) and ``azure_ad_token_provider``, which is asked before
    each try; ``azure_deployment``, to which all calls go whatever their model.
    """

    azure_endpoint: str | None
    azure_deployment: str | None
    api_version: str | None
    azure_ad_token: str | None
    azure_ad_token_provider: TokenProvider | None


class AzureOpenAI(OpenAI):
    """The synchronous client of an Azure OpenAI resource; see :class:`AzureOptions`.

    Raises:
        OpenAIError: without a key or token, or with more than one of them.
        ValueError: without an API version or an endpoint.
    """

    _azure: Mapping[str, Any]

    def __init__(self, **options: Unpack[AzureOptions]) -> None:
        self._azure = _kept(options)
        self._begin(_core(type(self), options))

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        return _copied(self, changes)


class AsyncAzureOpenAI(AsyncOpenAI):
    """The asynchronous client of an Azure OpenAI resource; see :class:`AzureOpenAI`."""

    _azure: Mapping[str, Any]

    def __init__(self, **options: Unpack[AzureOptions]) -> None:
        self._azure = _kept(options)
        self._begin(_core(type(self), options))

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        return _copied(self, changes)


class MutuallyExclusiveAuthError(OpenAIError):
    """More than one of Azure's credentials was given."""


_Client = TypeVar("_Client", bound=AzureOpenAI | AsyncAzureOpenAI)
_OURS = frozenset(AzureOptions.__annotations__) - frozenset(ClientOptions.__annotations__)
_PLACE = frozenset({"azure_endpoint", "azure_deployment"})
_CREDENTIALS = frozenset({"api_key", "azure_ad_token", "azure_ad_token_provider"})


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are Azure's, for copies to start from."""
    return {name: options[name] for name in (*_OURS, "api_key") if options.get(name) is not None}


def _copied(client: _Client, changes: Mapping[str, Any]) -> _Client:
    azure = dict(client._azure)
    if _CREDENTIALS & changes.keys():  # a new one takes the place of whichever there was
        azure = {name: value for name, value in azure.items() if name not in _CREDENTIALS}
    if "base_url" in changes:  # elsewhere
        azure = {name: value for name, value in azure.items() if name not in _PLACE}
    rest = {name: value for name, value in client.core.options.items() if name != "api_key"}
    made = type(client).__new__(type(client))
    options = {**rest, **azure, **changes}
    if azure.get("azure_endpoint"):
        options.pop("base_url", None)
    made._azure = _kept(options)
    made._begin(_core(type(client), options, client.core))
    return made


def _core(cls: type, options: Mapping[str, Any], source: ClientCore | None = None) -> ClientCore:
    given = {name: value for name, value in options.items() if not isinstance(value, NotGiven)}
    checked_options(cls, {name: value for name, value in given.items() if name not in _OURS})
    endpoint = {
        **_credentials(given),
        "deployments": True,
        "price_provider": "azure",
        "stream_usage": True,
        "capabilities": preset("azure").capabilities,
    }
    version = given.get("api_version") or os.environ.get("OPENAI_API_VERSION")
    if version is None:
        raise ValueError(
            "Must provide either the `api_version` argument or the `OPENAI_API_VERSION` environment variable"
        )
    base_url = _base_url(given)
    if "/deployments" in base_url:
        endpoint["deployments"] = False  # every call goes to the one that is named
    elif given.get("azure_deployment"):
        endpoint["deployment"] = given["azure_deployment"]
    made = {name: value for name, value in given.items() if name not in _OURS and name != "api_key"}
    made["base_url"] = base_url
    made["default_query"] = {**(given.get("default_query") or {}), "api-version": version}
    return ClientCore(made, endpoint=endpoint, source=source)


def _credentials(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an endpoint that say how requests are signed."""
    named = [name for name in sorted(_CREDENTIALS) if given.get(name) is not None]
    if len(named) > 1:
        raise MutuallyExclusiveAuthError(
            "The `api_key`, `azure_ad_token` and `azure_ad_token_provider` arguments are mutually exclusive; "
            f"{' and '.join(named)} were given, and only one can be"
        )
    key, token, source = (
        given.get(name) for name in ("api_key", "azure_ad_token", "azure_ad_token_provider")
    )
    if not named:
        token = os.environ.get("AZURE_OPENAI_AD_TOKEN")
        key = None if token else os.environ.get("AZURE_OPENAI_API_KEY")
    if not (key or token or source):
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
