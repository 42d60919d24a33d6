"""The SDK: an OpenAI-compatible client with routing, speculation telemetry and exact cost accounting.

Names are loaded on first use: ``import specclient`` alone reads no engine, database or tokenizer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    CheckpointError,
    ConfigurationError,
    ConflictError,
    ContextOverflowError,
    EngineError,
    InternalServerError,
    LedgerError,
    NoRouteError,
    NotFoundError,
    OpenAIError,
    PermissionDeniedError,
    RateLimitError,
    SpecClientError,
    UnprocessableEntityError,
    UnsupportedParameterError,
)

if TYPE_CHECKING:
    from specclient import types
    from specclient.client import AsyncOpenAI
    from specclient.config import Settings
    from specclient.stream import AsyncStream, Stream
    from specclient.sync import OpenAI
    from specclient.types import Call, Cost, Decision, Policy, Speculation, Usage
    from specclient.types.params import NOT_GIVEN, omit

__version__ = "0.1.0"

__all__ = [
    "NOT_GIVEN",
    "APIConnectionError",
    "APIError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncOpenAI",
    "AsyncStream",
    "AuthenticationError",
    "BadRequestError",
    "Call",
    "CheckpointError",
    "ConfigurationError",
    "ConflictError",
    "ContextOverflowError",
    "Cost",
    "Decision",
    "EngineError",
    "InternalServerError",
    "LedgerError",
    "NoRouteError",
    "NotFoundError",
    "OpenAI",
    "OpenAIError",
    "PermissionDeniedError",
    "Policy",
    "RateLimitError",
    "Settings",
    "SpecClientError",
    "Speculation",
    "Stream",
    "UnprocessableEntityError",
    "UnsupportedParameterError",
    "Usage",
    "__version__",
    "omit",
    "types",
]

_LAZY = {
    "AsyncOpenAI": "specclient.client",
    "Settings": "specclient.config",
    "AsyncStream": "specclient.stream",
    "Stream": "specclient.stream",
    "OpenAI": "specclient.sync",
    "Call": "specclient.types",
    "Cost": "specclient.types",
    "Decision": "specclient.types",
    "Policy": "specclient.types",
    "Speculation": "specclient.types",
    "Usage": "specclient.types",
    "NOT_GIVEN": "specclient.types.params",
    "omit": "specclient.types.params",
}


def __getattr__(name: str) -> Any:
    if name == "types":
        return importlib.import_module("specclient.types")
    if name not in _LAZY:
        raise AttributeError(f"module 'specclient' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
