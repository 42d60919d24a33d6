"""Estimates before any call: from shipped priors and from the load of a destination."""

from __future__ import annotations

import math
from functools import cache

from specclient.routing.learn.draft_depth import best_depth
from specclient.routing.learn.priors import ACCEPTANCE, RoutePrior
from specclient.routing.learn.quantile_sketch import QuantileSketch, quantiles
from specclient.routing.learn.route_estimate import HEDGE_PERCENTILE, RouteEstimate
from specclient.types.criterion import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = ["cold_start_estimate", "default_spread", "estimate_depth", "queue_wait_s"]


def cold_start_estimate(
    prior: RoutePrior | None,
    task: PromptTask | None,
    percentile: float,
    *,
    calls: int = 0,
    failure_rate: float = 0.0,
    load: ServerLoad | None = None,
    prompt_tokens: int | None = None,
) -> RouteEstimate:
    """Return the estimate for a route that has not answered yet; the prompt of no length is a short one."""
    acceptance = (None, None) if load is None else (load.acceptance_rate, load.tokens_per_verification)
    if prior is None:
        return RouteEstimate(
            calls=calls,
            failure_rate=failure_rate,
            acceptance_rate=acceptance[0],
            tokens_per_verification=acceptance[1],
            assumed=True,
        )
    p10_factor, limit_factor = sorted(quantiles(((default_spread(), 1.0),), tuple(sorted((0.1, percentile)))))
    usual = None if percentile == HEDGE_PERCENTILE else default_spread().quantile(HEDGE_PERCENTILE)
    first = prior.first_s(prompt_tokens)
    waiting = queue_wait_s(load, first + prior.token_s * 256)
    return RouteEstimate(
        calls=calls,
        ttft_s=first + waiting,
        token_s=prior.token_s,
        ttft_limit_s=waiting + first * limit_factor,
        p10_factor=p10_factor,
        limit_factor=limit_factor,
        p95_ttft_s=None if usual is None else waiting + first * usual,
        p95_factor=usual,
        engine_token_s=prior.token_s,
        failure_rate=failure_rate,
        acceptance_rate=acceptance[0],
        tokens_per_verification=acceptance[1],
        depth=estimate_depth(None, prior.cost_ratio, task, load, None),
        optimistic_speedup=2.0,
        assumed=True,
        similar=prior.similar,
    )


def estimate_depth(
    alpha: float | None,
    cost_ratio: float | None,
    task: PromptTask | None,
    load: ServerLoad | None,
    prompt: int | None,
) -> int | None:
    """Return the best number of tokens to draft; None if the cost of drafting is unknown."""
    if cost_ratio is None:
        return None
    if alpha is None:
        alpha = ACCEPTANCE[task or "chat"]
    return best_depth(alpha, cost_ratio, task=task, load=load, prompt_tokens=prompt)


def queue_wait_s(load: ServerLoad | None, usual_s: float) -> float:
    """Return the seconds in the queue; a waiting request starts when a running one ends."""
    if load is None:
        return 0.0
    if load.slots and load.running >= load.slots:  # the next request waits as well
        return (load.waiting + 1) / load.slots * usual_s
    return load.waiting / max(load.slots or load.running, 1.0) * usual_s


@cache
def default_spread() -> QuantileSketch:
    """Return the assumed spread of calls around a prediction: ±40 %, with a heavier upper end."""
    usual = QuantileSketch()
    for percent in range(1, 100):
        score = math.log(percent / (100 - percent)) / 1.702
        usual.add(math.exp((0.4 if score < 0 else 0.5) * score))
    return usual
