"""Bedrock's clients, under the OpenAI client's module path."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from specclient.client.bedrock import AsyncBedrockOpenAI, BedrockOpenAI

BedrockTokenProvider: TypeAlias = Callable[[], str]
AsyncBedrockTokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]
AwsCredentialsProvider: TypeAlias = Callable[[], object]

__all__ = [
    "AsyncBedrockOpenAI",
    "AsyncBedrockTokenProvider",
    "AwsCredentialsProvider",
    "BedrockOpenAI",
    "BedrockTokenProvider",
]
