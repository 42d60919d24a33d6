"""Engine telemetry of a response, summed over its choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specclient.types.backend import EngineTelemetry
from specclient.types.usage import Speculation
from specclient_local.loading.configured_models import ConfiguredModel

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation


def answer_telemetry(generations: Sequence[Generation], configured: ConfiguredModel) -> EngineTelemetry:
    """Return speculation and engine seconds, summed over all choices of a response.

    Args:
        generations: one per choice.
        configured: the model that generated them.
    """
    speculation = sum_speculation([generation.speculation for generation in generations])
    return EngineTelemetry(
        speculation=speculation,
        engine_s=sum(generation.timings.engine_s for generation in generations),
        pair=configured.pair_name(speculation.method),
    )


def sum_speculation(parts: Sequence[Speculation]) -> Speculation:
    """Sum the counts of several speculations and recompute their rates.

    The per-position counts are kept only where there is a single speculation.
    """
    if len(parts) == 1:
        return parts[0]
    drafted, accepted, steps = (_sum(getattr(p, n) for p in parts) for n in ("drafted", "accepted", "steps"))
    methods = {part.method for part in parts}
    return Speculation(
        method=methods.pop() if len(methods) == 1 else None,
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=accepted / drafted if drafted and accepted is not None else None,
        mean_accepted_length=1 + accepted / steps if steps and accepted is not None else None,
        predicted_accepted=_sum(part.predicted_accepted for part in parts),
        predicted_rejected=_sum(part.predicted_rejected for part in parts),
        source=parts[0].source,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
