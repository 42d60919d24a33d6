"""OpenAI dialect and provider table: pure translation between OpenAI-shaped calls and wire bodies."""

from specclient.providers.dialects import DIALECTS, dialect
from specclient.providers.endpoint import Dialect, Endpoint, EventReader
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
    "preset",
    "usage_requested",
]
