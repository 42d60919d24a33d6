"""Turn a model's name into a coarse tier of quality, from 0 to 1: shipped priors, for configurations to mend.

Tiers say which models people take for one another, no more. They follow the order in which vendors rank and
price their own models (small, middle, large, reasoning) and the broad agreement of public leaderboards on
families; nobody measured them here, and a task of one's own may order models otherwise: say so in
``[quality]``, by route or by the beginning of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["TIERS", "tier_of"]

#: Beginnings of a model's name without what stands before its last slash, and its tier. The longest wins.
TIERS: Mapping[str, float] = {
    # The bundled pair, which writes Python's documentation and little else.
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
    # Open families whose names tell the size: see _SIZES for the rest.
    "kimi-k2": 0.8,
    "glm-4": 0.75,
    "qwen3-max": 0.85,
    "qwen3-coder": 0.75,
}

#: Of open models known by family alone: billions of parameters, and the tier from there on.
_SIZES = ((200, 0.75), (60, 0.65), (25, 0.55), (12, 0.45), (6, 0.4), (2.5, 0.3), (1, 0.2), (0, 0.1))
_FAMILIES = re.compile(
    r"(llama|qwen|mistral|mixtral|phi|yi|gemma|granite|olmo|falcon|smollm|nemotron|vicuna)"
)
_BILLIONS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])")


def tier_of(route: str, own: Mapping[str, float] | None = None) -> float | None:
    """Return the tier of a route's model, None where it is not known.

    Args:
        route: ``provider/model``.
        own: the configuration's, by route or by the beginning of one; the longest that fits goes first.
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
    """Tell whether a model is of a name: ``o1-preview`` is of ``o1``, ``o10`` is not."""
    return model.startswith(name) and not model[len(name) : len(name) + 1].isalnum()
