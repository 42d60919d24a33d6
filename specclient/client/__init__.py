"""The clients: `OpenAI`, `AsyncOpenAI`, those of Azure and Bedrock, and the module-level client.

The classes load on first use, so that importing one of them does not import the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.client.azure import AsyncAzureOpenAI, AzureOpenAI
    from specclient.client.bedrock import AsyncBedrockOpenAI, BedrockOpenAI
    from specclient.client.sync_client import OpenAI

__all__ = ["AsyncAzureOpenAI", "AsyncBedrockOpenAI", "AsyncOpenAI", "AzureOpenAI", "BedrockOpenAI", "OpenAI"]

_MODULES = {
    "AsyncAzureOpenAI": "specclient.client.azure",
    "AsyncBedrockOpenAI": "specclient.client.bedrock",
    "AsyncOpenAI": "specclient.client.async_client",
    "AzureOpenAI": "specclient.client.azure",
    "BedrockOpenAI": "specclient.client.bedrock",
    "OpenAI": "specclient.client.sync_client",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
