"""Azure's clients, under the OpenAI client's module path."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from specclient.client.azure import AsyncAzureOpenAI, AzureOpenAI, MutuallyExclusiveAuthError

AzureADTokenProvider: TypeAlias = Callable[[], str]
AsyncAzureADTokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]

__all__ = [
    "AsyncAzureADTokenProvider",
    "AsyncAzureOpenAI",
    "AzureADTokenProvider",
    "AzureOpenAI",
    "MutuallyExclusiveAuthError",
]
