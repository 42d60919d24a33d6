"""The score of a call's answer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

__all__ = ["CallScore", "ScoreGiver"]

#: Who gave a score.
ScoreGiver = Literal["feedback", "judge"]


@dataclass(frozen=True, slots=True)
class CallScore:
    """The score of a call's answer, as the ledger stores it.

    It holds the route and the task of its call, so that it is read without the call, and stays valid when the
    call's row is written later, or by another process.

    Attributes:
        call_id: ``meta.id`` of the answer.
        route: the ``provider/model`` that wrote it.
        task: the kind of its prompt, None where unknown.
        score: from 0 to 1.
        weight: how much it counts; 1 for a caller's score.
        giver: who gave it.
        id: the score's own unique id, by which it is stored and learned from once.
        scored_at: UTC.
    """

    call_id: str
    route: str
    task: str | None
    score: float
    weight: float = 1.0
    giver: ScoreGiver = "feedback"
    id: str = field(default_factory=lambda: os.urandom(16).hex())
    scored_at: datetime = field(default_factory=lambda: datetime.now(UTC))
