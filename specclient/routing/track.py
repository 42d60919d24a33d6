"""Turn finished calls of one task on a route into their lengths, what drafting did, and their spread."""

from __future__ import annotations

from specclient.routing.line import Line
from specclient.routing.pace import Timing
from specclient.routing.sample import Sample
from specclient.routing.sketch import Sketch

__all__ = ["SPREAD_CALLS", "SPREAD_SECONDS", "Track"]

#: How what is known of the spread around a prediction fades, in calls and in seconds.
SPREAD_CALLS, SPREAD_SECONDS = 100.0, 86400.0


class Track:
    """What is known of one task on a route, or of all of them, whatever the route's speed is now."""

    __slots__ = ("accepted", "calls", "cost", "drafted", "given", "over", "over_first", "steps", "tokens")

    def __init__(self) -> None:
        self.calls = 0
        self.over = Sketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.over_first = Sketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.tokens = Sketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.accepted = self.drafted = self.steps = self.given = 0.0
        self.cost = Line(SPREAD_CALLS)

    def add(self, sample: Sample, call: Timing) -> None:
        """Note a finished call."""
        self.calls += 1
        self.tokens.add(call.tokens, sample.at)
        if sample.accepted is None or not sample.drafted or sample.drafted < 0:
            return
        keep = 2 ** (-1 / SPREAD_CALLS)
        self.accepted = self.accepted * keep + min(max(sample.accepted, 0), sample.drafted)
        self.drafted = self.drafted * keep + sample.drafted
        if sample.steps is not None and sample.steps > 0:
            self.steps = self.steps * keep + sample.steps
            self.given = self.given * keep + call.tokens
            decoding = call.working_s - (call.first_s or 0.0)
            self.cost.add(sample.drafted / sample.steps, decoding / sample.steps)
