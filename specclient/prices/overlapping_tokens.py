"""Kinds of tokens that overlap in a usage, taken apart, so that each token is billed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Protocol

from specclient.types.usage import Usage

__all__ = ["with_cached_media", "without_excess"]


class MediaRates(Protocol):
    """The rates by which tokens of media and cached ones are told apart; see ``PriceRates``."""

    @property
    def cached_input(self) -> Decimal | None:
        """Dollars per million cached tokens."""
        ...


def with_cached_media(usage: Usage, rates: MediaRates) -> tuple[Usage, bool]:
    """Take cached audio and images out of the other kinds that contain them, so that each token is in one.

    Returns:
        The usage, in which ``cached`` is without the tokens that have a cache price of their own, and audio
        and images are without cached ones; and whether a price is assumed, because the response does not
        state which of its audio or image tokens were cached, or they have no cache price of their own.
    """
    changes: dict[str, Any] = {}
    cached, unsure = usage.cached or 0, False
    for kind in ("audio", "image"):
        media, own = getattr(usage, f"{kind}_prompt") or 0, getattr(rates, f"cached_{kind}_input")
        reported = getattr(usage, f"cached_{kind}")
        if own is None and None in (getattr(rates, f"{kind}_input"), rates.cached_input):
            continue  # no price distinguishes them
        if reported is None:
            unsure = unsure or bool(cached and media)
            continue
        part = min(reported, media, cached)
        changes[f"{kind}_prompt"] = media - part
        if own is None:
            unsure = unsure or bool(part)
            changes[f"cached_{kind}"] = 0
        else:
            cached -= part
            changes |= {f"cached_{kind}": part, "cached": cached}
    return (replace(usage, **changes) if changes else usage), unsure


def without_excess(usage: Usage, prompt: Sequence[str], completion: Sequence[str]) -> tuple[Usage, str]:
    """Reduce kinds of tokens that together exceed all input or output tokens, and mark the usage estimated.

    A server may report such counts.

    Args:
        prompt, completion: the names of the kinds that are parts of all prompt and completion tokens.

    Returns:
        The usage, and a note for the source of the price, empty if nothing was changed.
    """
    parts = _cut(usage, usage.prompt or 0, prompt) | _cut(usage, usage.completion or 0, completion)
    parts["cache_write_1h"] = min(usage.cache_write_1h or 0, parts["cache_write"])
    if all((getattr(usage, name) or 0) == count for name, count in parts.items()):
        return usage, ""
    changed: dict[str, Any] = {**parts, "estimated": True}
    return replace(usage, **changed), "; the reported parts exceeded their whole and were cut"


def _cut(usage: Usage, total: int, names: Iterable[str]) -> dict[str, int]:
    """Return the counts of these names, each cut to the rest of the total after those before it."""
    counts = {}
    for name in names:
        counts[name] = min(getattr(usage, name) or 0, total)
        total -= counts[name]
    return counts
