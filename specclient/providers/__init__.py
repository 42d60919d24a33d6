"""Providers: endpoints, presets, and the wire dialects between OpenAI-shaped calls and HTTP bodies."""

from specclient.providers.dialects import (
    DIALECTS,
    Dialect,
    EventReader,
    dialect,
    dialect_of,
    endpoint_of_model,
)
from specclient.providers.endpoint import Endpoint
from specclient.providers.openai.dialect import OpenAIDialect, usage_requested
from specclient.providers.presets.preset import Preset
from specclient.providers.presets.registry import PRESETS, preset

__all__ = [
    "DIALECTS",
    "PRESETS",
    "Dialect",
    "Endpoint",
    "EventReader",
    "OpenAIDialect",
    "Preset",
    "dialect",
    "dialect_of",
    "endpoint_of_model",
    "preset",
    "usage_requested",
]
