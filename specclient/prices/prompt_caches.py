"""Vendors' prompt caches: how long they keep a prompt, and how long one must be.

Each row has the page that states it, and the date on which it was read. Prices of cached and written tokens
are those of the catalogue; an expired prompt costs as one that was never cached.
"""

from __future__ import annotations

from datetime import date
from typing import Final, NamedTuple

__all__ = ["HOUR_S", "PROMPT_CACHES", "PromptCache", "prompt_cache_of"]

#: Seconds for which tokens are kept that were written at the price of an hour (Anthropic, "1-hour cache
#: duration").
HOUR_S: Final = 3600.0


class PromptCache(NamedTuple):
    """A vendor's prompt cache.

    Attributes:
        vendor: the catalogue's id of the vendor; empty for vendors without a row.
        kept_s: the least seconds that a prompt is kept after its last use.
        shortest: tokens of the shortest prompt that is kept.
        source: the page that states them.
        read: when it was read.
    """

    vendor: str
    kept_s: float
    shortest: int
    source: str
    read: date


_READ: Final = date(2026, 11, 27)
_OPENAI: Final = "https://developers.openai.com/docs/guides/prompt-caching"

PROMPT_CACHES: Final = (
    PromptCache("openai", 300.0, 1024, _OPENAI, _READ),
    PromptCache(
        "azure",
        300.0,
        1024,
        "https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching",
        _READ,
    ),
    PromptCache(
        "anthropic",
        300.0,
        1024,
        "https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
        _READ,
    ),
    # "a few hours to a few days"
    PromptCache("deepseek", HOUR_S, 1024, "https://api-docs.deepseek.com/guides/kv_cache", _READ),
)
#: Of vendors without a row: as at OpenAI, whose terms are the most common.
_OTHERS: Final = PromptCache("", 300.0, 1024, _OPENAI, _READ)
_BY_VENDOR: Final = {each.vendor: each for each in PROMPT_CACHES}


def prompt_cache_of(vendor: str | None) -> PromptCache:
    """Return a vendor's prompt cache."""
    return _BY_VENDOR.get(vendor or "", _OTHERS)
