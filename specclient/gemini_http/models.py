"""The served models in Gemini's form: https://ai.google.dev/api/models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["model_list", "model_resource"]


def model_resource(name: str) -> dict[str, Any]:
    """Return a model."""
    methods = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def model_list(names: Sequence[str]) -> dict[str, Any]:
    """Return all models; the list has one page."""
    return {"models": [model_resource(name) for name in names]}
