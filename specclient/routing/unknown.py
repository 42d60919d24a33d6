"""Turn what ships with the library, and what a place tells of itself, into what is expected of its calls."""

from __future__ import annotations

import math
from functools import cache

from specclient.routing.depth import best_depth
from specclient.routing.estimate import PATIENT, Estimate
from specclient.routing.priors import ACCEPTANCE, Prior
from specclient.routing.sketch import Sketch, quantiles
from specclient.types.load import Load
from specclient.types.route import Task

__all__ = ["assumed", "depth_of", "usual_spread", "waiting_s"]


def assumed(
    prior: Prior | None,
    task: Task | None,
    percentile: float,
    *,
    calls: int = 0,
    failure_rate: float = 0.0,
    load: Load | None = None,
) -> Estimate:
    """Return what is expected of a route that has answered nothing yet."""
    told = (None, None) if load is None else (load.acceptance_rate, load.tokens_per_verification)
    if prior is None:
        return Estimate(
            calls=calls,
            failure_rate=failure_rate,
            acceptance_rate=told[0],
            tokens_per_verification=told[1],
            assumed=True,
        )
    early, late = sorted(quantiles(((usual_spread(), 1.0),), tuple(sorted((0.1, percentile)))))
    usual = None if percentile == PATIENT else usual_spread().quantile(PATIENT)
    waiting = waiting_s(load, prior.ttft_s + prior.token_s * 256)
    return Estimate(
        calls=calls,
        ttft_s=prior.ttft_s + waiting,
        token_s=prior.token_s,
        ttft_limit_s=waiting + prior.ttft_s * late,
        early=early,
        late=late,
        usual_limit_s=None if usual is None else waiting + prior.ttft_s * usual,
        usual_late=usual,
        engine_token_s=prior.token_s,
        failure_rate=failure_rate,
        acceptance_rate=told[0],
        tokens_per_verification=told[1],
        depth=depth_of(None, prior.cost_ratio, task, load, None),
        hopeful=2.0,
        assumed=True,
    )


def depth_of(
    alpha: float | None, cost_ratio: float | None, task: Task | None, load: Load | None, prompt: int | None
) -> int | None:
    """Return how far to draft; None where it is not known what drafting costs there."""
    if cost_ratio is None:
        return None
    if alpha is None:
        alpha = ACCEPTANCE[task or "chat"]
    return best_depth(alpha, cost_ratio, task=task, load=load, prompt_tokens=prompt)


def waiting_s(load: Load | None, usual_s: float) -> float:
    """Return the seconds in line: each that waits is let in when one of those that run is done."""
    if load is None:
        return 0.0
    if load.slots and load.running >= load.slots:  # the next one waits, too
        return (load.waiting + 1) / load.slots * usual_s
    return load.waiting / max(load.slots or load.running, 1.0) * usual_s


@cache
def usual_spread() -> Sketch:
    """Return the spread around a prediction where nothing is known of it: ±40 %, with a heavier upper end."""
    usual = Sketch()
    for percent in range(1, 100):
        score = math.log(percent / (100 - percent)) / 1.702
        usual.add(math.exp((0.4 if score < 0 else 0.5) * score))
    return usual
