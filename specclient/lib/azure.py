"""Azure's clients, under the OpenAI client's module path."""

from specclient.client.azure import AsyncAzureOpenAI, AzureOpenAI, MutuallyExclusiveAuthError

__all__ = ["AsyncAzureOpenAI", "AzureOpenAI", "MutuallyExclusiveAuthError"]
