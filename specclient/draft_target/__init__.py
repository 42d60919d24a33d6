"""The draft-target workflow: two plain chat calls, a short answer of a cheap model and then the target's."""

from __future__ import annotations

from specclient.draft_target.presets import DEPTHS, DEPTHS_TOKENS, PAIRS, SEGMENT_TOKENS, ModelPair, Task
from specclient.draft_target.result import DraftTargetResult, StageResult, acceptance
from specclient.draft_target.workflow import (
    aspeculative_decode,
    aspeculative_decode_many,
    speculative_decode,
    speculative_decode_many,
)

__all__ = [
    "DEPTHS",
    "DEPTHS_TOKENS",
    "PAIRS",
    "SEGMENT_TOKENS",
    "DraftTargetResult",
    "ModelPair",
    "StageResult",
    "Task",
    "acceptance",
    "aspeculative_decode",
    "aspeculative_decode_many",
    "speculative_decode",
    "speculative_decode_many",
]
