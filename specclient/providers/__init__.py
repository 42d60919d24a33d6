"""OpenAI dialect and provider table: pure translation between OpenAI-shaped calls and wire bodies."""

from specclient.providers.base import Dialect, Endpoint
from specclient.providers.openai import OpenAIDialect, usage_requested
from specclient.providers.presets import DIALECTS, PRESETS, Preset, preset

__all__ = [
    "DIALECTS",
    "PRESETS",
    "Dialect",
    "Endpoint",
    "OpenAIDialect",
    "Preset",
    "preset",
    "usage_requested",
]
