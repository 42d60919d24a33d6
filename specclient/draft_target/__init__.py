"""Draft-then-target over two plain chat calls: a cheap model answers first, in short, then the target."""

from __future__ import annotations

from specclient.draft_target.play import (
    aspeculative_decode,
    aspeculative_decode_many,
    speculative_decode,
    speculative_decode_many,
)
from specclient.draft_target.presets import DEPTHS, PAIRS, SEGMENT_TOKENS, Pair, Task
from specclient.draft_target.result import DraftTargetResult, Side, acceptance

__all__ = [
    "DEPTHS",
    "PAIRS",
    "SEGMENT_TOKENS",
    "DraftTargetResult",
    "Pair",
    "Side",
    "Task",
    "acceptance",
    "aspeculative_decode",
    "aspeculative_decode_many",
    "speculative_decode",
    "speculative_decode_many",
]
