"""Turn a list of methods into a table: how fast each answers the same prompts, and what theory expects."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.engine.engine import Engine
from specclient_local.measure.expected_speedup import implied_alpha, speed_up
from specclient_local.measure.timed_runs import TimedRun, answer, median_ratio, run_alternating
from specclient_local.request.params import Method, Parameters

PLAIN_METHOD: Method = "plain"


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method made of the prompts: medians over the runs.

    Attributes:
        tokens_per_s: of all requests together, prefills included.
        ttft_s: to the first token; tpot_s: a token after it.
        acceptance_rate: draft tokens kept over those verified; None where nothing was drafted, or a
            prediction's tokens are not counted so.
        mean_accepted_length: tokens a round, the target's own included.
        mean_draft_length: tokens drafted a round.
        speed_up: over plain decoding, the median of the ratios within one turn.
        alpha: the acceptance chance that wins so many tokens a round (:func:`implied_alpha`).
        cost: c, of a draft pass in plain steps, as measured at load; 0 where drafts run no model.
        expected: the closed form's speed-up with these, drafts taken to be chains; None where nothing was
            drafted, and of unions, which are none.
        identical: whether every answer has the same tokens as plain decoding's.
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
    told: Callable[[str], None] = lambda _: None,
) -> list[MethodResult]:
    """Time methods in turn; plain decoding, which the others are compared with, is always among them.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        methods: those to time.
        params: of every request, without ``method``.
        batch: prompts at a time.
        repeat: runs that count.
        told: is told what runs now.

    Raises:
        ConfigurationError: a method that the engine has not.
    """
    for method in methods:
        if method not in engine.methods:
            usable = ", ".join(own for own in engine.methods if own != "prediction")
            raise ConfigurationError(
                f"method is {method!r}; as loaded, this engine has {usable}. Methods that draft with a model "
                "need one named as the draft."
            )
    order: list[Method] = [PLAIN_METHOD, *(method for method in methods if method != PLAIN_METHOD)]
    ways: dict[str, Callable[[], TimedRun]] = {
        method: partial(answer, engine, prompts, with_method(params, method), batch=batch) for method in order
    }
    runs = run_alternating(ways, repeat, told)
    return [_row(engine, method, runs[method], runs[PLAIN_METHOD]) for method in order]


def with_method(params: Parameters, method: Method) -> Parameters:
    """Return the parameters of the same requests by another method; a plain one drafts nothing."""
    made = params.copy()
    made["method"] = method
    if method == PLAIN_METHOD:
        made.pop("draft_length", None)
        made.pop("draft_tree", None)
    return made


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
