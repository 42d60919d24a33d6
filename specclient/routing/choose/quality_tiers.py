"""Quality tiers: a coarse rank of models from 0 to 1, by name.

A tier only says which models are comparable. The shipped tiers follow the order in which vendors rank and
price their own models (small, middle, large, reasoning) and the broad agreement of public leaderboards on
families. They are not measured here, and other tasks may order models differently: set your own in
``[quality]``, by route or route prefix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["TIERS", "tier_of"]

#: Tiers by prefix of a model's name, without everything up to its last slash. The longest prefix wins.
TIERS: Mapping[str, float] = {
    # The bundled pair, trained on Python's documentation.
    "demo": 0.05,
    # OpenAI: https://platform.openai.com/docs/models
    "gpt-5": 0.9,
    "gpt-5-mini": 0.75,
    "gpt-5-nano": 0.6,
    "gpt-4.1": 0.8,
    "gpt-4.1-mini": 0.65,
    "gpt-4.1-nano": 0.5,
    "gpt-4o": 0.75,
    "gpt-4o-mini": 0.55,
    "gpt-4-turbo": 0.7,
    "gpt-4": 0.65,
    "gpt-3.5": 0.4,
    "gpt-oss-120b": 0.75,
    "gpt-oss-20b": 0.6,
    "o1": 0.85,
    "o1-mini": 0.7,
    "o3": 0.9,
    "o3-mini": 0.75,
    "o4-mini": 0.8,
    # Anthropic: https://docs.anthropic.com/en/docs/about-claude/models/overview
    "claude-opus-4": 0.95,
    "claude-sonnet-4": 0.9,
    "claude-haiku-4": 0.75,
    "claude-3-7-sonnet": 0.85,
    "claude-3-5-sonnet": 0.8,
    "claude-3-5-haiku": 0.6,
    "claude-3-opus": 0.7,
    "claude-3-haiku": 0.45,
    # Google: https://ai.google.dev/gemini-api/docs/models
    "gemini-3-pro": 0.95,
    "gemini-2.5-pro": 0.9,
    "gemini-2.5-flash": 0.75,
    "gemini-2.5-flash-lite": 0.6,
    "gemini-2.0-flash": 0.6,
    "gemini-2.0-flash-lite": 0.5,
    "gemma-3-27b": 0.55,
    "gemma-3": 0.4,
    "gemma-2": 0.35,
    # DeepSeek, xAI, Mistral
    "deepseek-chat": 0.8,
    "deepseek-v3": 0.8,
    "deepseek-reasoner": 0.85,
    "deepseek-r1": 0.85,
    "grok-4": 0.9,
    "grok-3": 0.8,
    "grok-3-mini": 0.7,
    "mistral-large": 0.7,
    "mistral-medium": 0.7,
    "mistral-small": 0.55,
    "ministral": 0.35,
    "codestral": 0.55,
    # Open families; for those with a size in their names see _SIZES.
    "kimi-k2": 0.8,
    "glm-4": 0.75,
    "qwen3-max": 0.85,
    "qwen3-coder": 0.75,
}

#: Tiers of open models of other families: the least billions of parameters, and the tier.
_SIZES = ((200, 0.75), (60, 0.65), (25, 0.55), (12, 0.45), (6, 0.4), (2.5, 0.3), (1, 0.2), (0, 0.1))
_FAMILIES = re.compile(
    r"(llama|qwen|mistral|mixtral|phi|yi|gemma|granite|olmo|falcon|smollm|nemotron|vicuna)"
)
_BILLIONS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])")


def tier_of(route: str, own: Mapping[str, float] | None = None) -> float | None:
    """Return the tier of a route's model, None where unknown.

    Args:
        route: ``provider/model``.
        own: the tiers of the configuration, by route or route prefix; the longest match wins over the shipped
            tiers.
    """
    if own:
        named = max((name for name in own if route.startswith(name)), key=len, default=None)
        if named is not None:
            return own[named]
    model = route.rpartition("/")[2].lower()
    known = max((name for name in TIERS if _begins(model, name)), key=len, default=None)
    if known is not None:
        return TIERS[known]
    size = _BILLIONS.search(model)
    if size is None or not _FAMILIES.search(model):
        return None
    billions = float(size[1])
    return next(tier for least, tier in _SIZES if billions >= least)


def _begins(model: str, name: str) -> bool:
    """Return whether a name is a prefix that ends at a boundary: ``o1`` of ``o1-preview``, not of ``o10``."""
    return model.startswith(name) and not model[len(name) : len(name) + 1].isalnum()
