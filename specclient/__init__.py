"""The SDK: an OpenAI-compatible client with routing, speculation telemetry and exact cost accounting.

Names load on first use: ``import specclient`` imports no engine, database or tokenizer.
``import specclient as openai`` also works: options can be set on the module (``specclient.api_key = …``)
and resources used from it (``specclient.chat.completions.create(…)``).
"""

from __future__ import annotations

import importlib
import os as _os
from typing import TYPE_CHECKING, Any

from specclient import errors
from specclient.errors import *  # noqa: F403 - every error, under its own name
from specclient.openai_api.endpoints import ROOTS as _ROOTS
from specclient.runtime import module_paths as _module_paths
from specclient.version import VERSION

if TYPE_CHECKING:
    from specclient import auth, batch, types
    from specclient._module_client import (
        admin as admin,
    )
    from specclient._module_client import (
        audio as audio,
    )
    from specclient._module_client import (
        batches as batches,
    )
    from specclient._module_client import (
        beta as beta,
    )
    from specclient._module_client import (
        chat as chat,
    )
    from specclient._module_client import (
        completions as completions,
    )
    from specclient._module_client import (
        containers as containers,
    )
    from specclient._module_client import (
        content_provenance_checks as content_provenance_checks,
    )
    from specclient._module_client import (
        conversations as conversations,
    )
    from specclient._module_client import (
        decisions as decisions,
    )
    from specclient._module_client import (
        embeddings as embeddings,
    )
    from specclient._module_client import (
        evals as evals,
    )
    from specclient._module_client import (
        files as files,
    )
    from specclient._module_client import (
        fine_tuning as fine_tuning,
    )
    from specclient._module_client import (
        images as images,
    )
    from specclient._module_client import (
        live as live,
    )
    from specclient._module_client import (
        models as models,
    )
    from specclient._module_client import (
        moderations as moderations,
    )
    from specclient._module_client import (
        realtime as realtime,
    )
    from specclient._module_client import (
        responses as responses,
    )
    from specclient._module_client import (
        safety as safety,
    )
    from specclient._module_client import (
        skills as skills,
    )
    from specclient._module_client import (
        uploads as uploads,
    )
    from specclient._module_client import (
        vector_stores as vector_stores,
    )
    from specclient._module_client import (
        videos as videos,
    )
    from specclient._module_client import (
        webhooks as webhooks,
    )
    from specclient.call.stream import AsyncStream, Stream
    from specclient.client.async_client import AsyncOpenAI
    from specclient.client.async_client import AsyncOpenAI as AsyncClient
    from specclient.client.azure import AsyncAzureOpenAI, AzureOpenAI
    from specclient.client.bedrock import AsyncBedrockOpenAI, BedrockOpenAI
    from specclient.client.options import DEFAULT_MAX_RETRIES, DataResidency
    from specclient.client.sync_client import OpenAI
    from specclient.client.sync_client import OpenAI as Client
    from specclient.config import Settings
    from specclient.draft_target import (
        DraftTargetResult,
        aspeculative_decode,
        aspeculative_decode_many,
        speculative_decode,
        speculative_decode_many,
    )
    from specclient.http_transport.clients.defaults import (
        DEFAULT_CONNECTION_LIMITS,
        DEFAULT_TIMEOUT,
        DefaultAioHttpClient,
        DefaultAsyncHttpx2Client,
        DefaultAsyncHttpxClient,
        DefaultHttpx2Client,
        DefaultHttpxClient,
        ProxiesTypes,
        Timeout,
        Transport,
    )
    from specclient.lib.computer import AsyncComputerDriver as AsyncComputerDriver
    from specclient.lib.computer import AsyncComputerToolset as AsyncComputerToolset
    from specclient.lib.computer import ComputerDriver as ComputerDriver
    from specclient.lib.computer import ComputerToolset as ComputerToolset
    from specclient.official_client.clients import async_openai_client, openai_client
    from specclient.official_client.instrument import instrument, uninstrument
    from specclient.official_client.records import last_call
    from specclient.official_client.transport import async_transport, transport
    from specclient.providers.custom import Provider
    from specclient.resources.assistants import AssistantEventHandler, AsyncAssistantEventHandler
    from specclient.resources.file_inputs import file_from_path
    from specclient.resources.raw_response import AsyncStreamedResponse as AsyncAPIResponse
    from specclient.resources.raw_response import StreamedResponse as APIResponse
    from specclient.structured import pydantic_function_tool, pydantic_responses_function_tool
    from specclient.types import Call, Cost, Policy, Speculation, Strategy, Usage
    from specclient.types.base import WireModel as BaseModel
    from specclient.types.binary import HttpxBinaryResponseContent
    from specclient.types.budget import Budget, BudgetNotice
    from specclient.types.cache_options import CacheOptions
    from specclient.types.capabilities import Capabilities
    from specclient.types.limit import ResponseLimits
    from specclient.types.params import NOT_GIVEN, NotGiven, Omit, RequestOptions, not_given, omit
    from specclient.types.route import Decision
    from specclient.types.websocket_reconnection import ReconnectingEvent, ReconnectingOverrides

_module_paths.install()

__title__ = "specclient"
__version__ = VERSION

NoneType = type(None)

# Options of the module-level client (`import specclient as openai`); see `specclient.client.module_client`.
api_key: Any = None
admin_api_key: str | None = None
organization: str | None = None
project: str | None = None
webhook_secret: str | None = None
base_url: Any = None
timeout: Any = None
max_retries: int | None = None
default_headers: Any = None
default_query: Any = None
http_client: Any = None
api_type: str | None = _os.environ.get("OPENAI_API_TYPE")
api_version: str | None = _os.environ.get("OPENAI_API_VERSION")
azure_endpoint: str | None = _os.environ.get("AZURE_OPENAI_ENDPOINT")
azure_ad_token: str | None = None
azure_ad_token_provider: Any = None
bedrock_token_provider: Any = None

_LAZY = {
    "APIResponse": ("specclient.resources.raw_response", "StreamedResponse"),
    "AssistantEventHandler": ("specclient.resources.assistants", ""),
    "AsyncAPIResponse": ("specclient.resources.raw_response", "AsyncStreamedResponse"),
    "AsyncAssistantEventHandler": ("specclient.resources.assistants", ""),
    "AsyncAzureOpenAI": ("specclient.client.azure", ""),
    "AsyncBedrockOpenAI": ("specclient.client.bedrock", ""),
    "AsyncClient": ("specclient.client.async_client", "AsyncOpenAI"),
    "AsyncOpenAI": ("specclient.client.async_client", ""),
    "AsyncStream": ("specclient.call.stream", ""),
    "AzureOpenAI": ("specclient.client.azure", ""),
    "BaseModel": ("specclient.types.base", "WireModel"),
    "BedrockOpenAI": ("specclient.client.bedrock", ""),
    "Budget": ("specclient.types.budget", ""),
    "BudgetNotice": ("specclient.types.budget", ""),
    "CacheOptions": ("specclient.types.cache_options", ""),
    "Capabilities": ("specclient.types.capabilities", ""),
    "Call": ("specclient.types", ""),
    "Client": ("specclient.client.sync_client", "OpenAI"),
    "Cost": ("specclient.types", ""),
    "DEFAULT_CONNECTION_LIMITS": ("specclient.http_transport.clients.defaults", ""),
    "DEFAULT_MAX_RETRIES": ("specclient.client.options", ""),
    "DEFAULT_TIMEOUT": ("specclient.http_transport.clients.defaults", ""),
    "DataResidency": ("specclient.client.options", ""),
    "Decision": ("specclient.types.route", ""),
    "DefaultAioHttpClient": ("specclient.http_transport.clients.defaults", ""),
    "DefaultAsyncHttpx2Client": ("specclient.http_transport.clients.defaults", ""),
    "DefaultAsyncHttpxClient": ("specclient.http_transport.clients.defaults", ""),
    "DefaultHttpx2Client": ("specclient.http_transport.clients.defaults", ""),
    "DefaultHttpxClient": ("specclient.http_transport.clients.defaults", ""),
    "DraftTargetResult": ("specclient.draft_target", ""),
    "HttpxBinaryResponseContent": ("specclient.types.binary", ""),
    "NOT_GIVEN": ("specclient.types.params", ""),
    "NotGiven": ("specclient.types.params", ""),
    "Omit": ("specclient.types.params", ""),
    "OpenAI": ("specclient.client.sync_client", ""),
    "Policy": ("specclient.types", ""),
    "Provider": ("specclient.providers.custom", ""),
    "ProxiesTypes": ("specclient.http_transport.clients.defaults", ""),
    "ReconnectingEvent": ("specclient.types.websocket_reconnection", ""),
    "ReconnectingOverrides": ("specclient.types.websocket_reconnection", ""),
    "RequestOptions": ("specclient.types.params", ""),
    "ResponseLimits": ("specclient.types.limit", ""),
    "Settings": ("specclient.config", ""),
    "Speculation": ("specclient.types", ""),
    "Strategy": ("specclient.types", ""),
    "Stream": ("specclient.call.stream", ""),
    "Timeout": ("specclient.http_transport.clients.defaults", ""),
    "Transport": ("specclient.http_transport.clients.defaults", ""),
    "Usage": ("specclient.types", ""),
    "async_openai_client": ("specclient.official_client.clients", ""),
    "async_transport": ("specclient.official_client.transport", ""),
    "aspeculative_decode": ("specclient.draft_target", ""),
    "aspeculative_decode_many": ("specclient.draft_target", ""),
    "file_from_path": ("specclient.resources.file_inputs", ""),
    "instrument": ("specclient.official_client.instrument", ""),
    "last_call": ("specclient.official_client.records", ""),
    "not_given": ("specclient.types.params", ""),
    "omit": ("specclient.types.params", ""),
    "openai_client": ("specclient.official_client.clients", ""),
    "pydantic_function_tool": ("specclient.structured", ""),
    "pydantic_responses_function_tool": ("specclient.structured", ""),
    "speculative_decode": ("specclient.draft_target", ""),
    "speculative_decode_many": ("specclient.draft_target", ""),
    "transport": ("specclient.official_client.transport", ""),
    "uninstrument": ("specclient.official_client.instrument", ""),
}
_MODULES = ("auth", "batch", "lib", "types")
#: Not in `__all__`, because they need the `openai` package.
_COMPUTER = frozenset({"AsyncComputerDriver", "AsyncComputerToolset", "ComputerDriver", "ComputerToolset"})
_RESOURCES = frozenset({*_ROOTS, "completions", "embeddings", "moderations"})

__all__ = [
    "DEFAULT_CONNECTION_LIMITS",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_TIMEOUT",
    "NOT_GIVEN",
    "VERSION",
    "APIResponse",
    "AssistantEventHandler",
    "AsyncAPIResponse",
    "AsyncAssistantEventHandler",
    "AsyncAzureOpenAI",
    "AsyncBedrockOpenAI",
    "AsyncClient",
    "AsyncOpenAI",
    "AsyncStream",
    "AzureOpenAI",
    "BaseModel",
    "BedrockOpenAI",
    "Budget",
    "BudgetNotice",
    "CacheOptions",
    "Call",
    "Capabilities",
    "Client",
    "Cost",
    "DataResidency",
    "Decision",
    "DefaultAioHttpClient",
    "DefaultAsyncHttpx2Client",
    "DefaultAsyncHttpxClient",
    "DefaultHttpx2Client",
    "DefaultHttpxClient",
    "DraftTargetResult",
    "HttpxBinaryResponseContent",
    "NoneType",
    "NotGiven",
    "Omit",
    "OpenAI",
    "Policy",
    "Provider",
    "ProxiesTypes",
    "ReconnectingEvent",
    "ReconnectingOverrides",
    "RequestOptions",
    "ResponseLimits",
    "Settings",
    "Speculation",
    "Strategy",
    "Stream",
    "Timeout",
    "Transport",
    "Usage",
    "__title__",
    "__version__",
    "aspeculative_decode",
    "aspeculative_decode_many",
    "async_openai_client",
    "async_transport",
    "auth",
    "batch",
    "file_from_path",
    "instrument",
    "last_call",
    "not_given",
    "omit",
    "openai_client",
    "pydantic_function_tool",
    "pydantic_responses_function_tool",
    "speculative_decode",
    "speculative_decode_many",
    "transport",
    "types",
    "uninstrument",
]
__all__ += errors.__all__


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        value = getattr(importlib.import_module(module), attribute or name)
        globals()[name] = value
        return value
    if name in _COMPUTER:
        return getattr(importlib.import_module("specclient.lib.computer"), name)
    if name in _MODULES:
        return importlib.import_module(f"specclient.{name}")
    if name in _RESOURCES:
        return importlib.import_module("specclient.client.module_client").resource(name, globals())
    raise AttributeError(f"module 'specclient' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
