"""Compare decoding methods: the measured speed of each on the same prompts, and its expected speed-up."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.engine.engine import Engine
from specclient_local.measure.expected_speedup import implied_alpha, speed_up
from specclient_local.measure.timed_runs import TimedRun, median_ratio, run_alternating, run_prompts
from specclient_local.request.params import Method, Parameters

PLAIN_METHOD: Method = "plain"


@dataclass(frozen=True, slots=True)
class MethodResult:
    """The measurements of one method; medians over its runs.

    Attributes:
        method: the method.
        tokens_per_s: generated tokens per second of all requests together, including prefill.
        ttft_s: seconds to the first token.
        tpot_s: seconds per token after the first.
        acceptance_rate: accepted over verified draft tokens; None where nothing was drafted or the method
            does not count them.
        mean_accepted_length: mean tokens per round, including the target's own.
        mean_draft_length: mean drafted tokens per round.
        speed_up: relative to plain decoding, the median of the ratios within a turn.
        alpha: acceptance probability that gives this mean accepted length (:func:`implied_alpha`).
        cost: c, the cost of a draft pass in plain steps, as calibrated; 0 where drafting runs no model.
        expected: speed-up by the closed form with these values, assuming chains; None where nothing was
            drafted, and for unions, which are not chains.
        identical: whether every answer has the same tokens as with plain decoding.
    """

    method: Method
    tokens_per_s: float
    ttft_s: float
    tpot_s: float | None
    acceptance_rate: float | None
    mean_accepted_length: float
    mean_draft_length: float
    speed_up: float
    alpha: float | None
    cost: float | None
    expected: float | None
    identical: bool


def bench(
    engine: Engine,
    prompts: Seq[Seq[int]],
    methods: Seq[Method],
    params: Parameters,
    *,
    batch: int = 1,
    repeat: int = 3,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[MethodResult]:
    """Time methods alternately; plain decoding is always included as the reference.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        methods: the methods to time.
        params: parameters of every request, without ``method``.
        batch: concurrent requests.
        repeat: timed runs per method, after a warm-up.
        on_progress: called with a description of each run when it starts.

    Raises:
        ConfigurationError: the engine does not have a method.
    """
    for method in methods:
        if method not in engine.methods:
            usable = ", ".join(own for own in engine.methods if own != "prediction")
            raise ConfigurationError(
                f"method is {method!r}, but this engine was loaded with {usable}; name one of these, or load "
                "the draft model, heads or layers that the method needs."
            )
    order: list[Method] = [PLAIN_METHOD, *(method for method in methods if method != PLAIN_METHOD)]
    ways: dict[str, Callable[[], TimedRun]] = {
        method: partial(run_prompts, engine, prompts, with_method(params, method), batch=batch)
        for method in order
    }
    runs = run_alternating(ways, repeat, on_progress)
    return [_row(engine, method, runs[method], runs[PLAIN_METHOD]) for method in order]


def with_method(params: Parameters, method: Method) -> Parameters:
    """Return parameters with another method; draft length and tree are removed for plain decoding."""
    changed = params.copy()
    changed["method"] = method
    if method == PLAIN_METHOD:
        changed.pop("draft_length", None)
        changed.pop("draft_tree", None)
    return changed


def _row(engine: Engine, method: Method, runs: Seq[TimedRun], plain: Seq[TimedRun]) -> MethodResult:
    last = runs[-1]
    drafts = last.mean_draft_length
    measured = engine.costs.get(method)
    chains = drafts > 0 and method != "union"
    cost = None if not chains else 0.0 if measured is None else measured.draft
    alpha = implied_alpha(last.mean_accepted_length, drafts) if chains else None
    known = [run.tpot_s for run in runs if run.tpot_s is not None]
    return MethodResult(
        method=method,
        tokens_per_s=statistics.median(run.tokens_per_s for run in runs),
        ttft_s=statistics.median(run.ttft_s for run in runs),
        tpot_s=statistics.median(known) if known else None,
        acceptance_rate=last.acceptance_rate,
        mean_accepted_length=last.mean_accepted_length,
        mean_draft_length=drafts,
        speed_up=median_ratio(runs, plain),
        alpha=alpha,
        cost=cost,
        expected=None if alpha is None or cost is None else speed_up(alpha, drafts, cost),
        identical=all(run.token_ids == plain[0].token_ids for run in runs),
    )
