"""Find the fastest draft length: predicted from acceptance and costs, and timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.drafting.best_shape import expected_tokens
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.engine.engine import Engine
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, speed_up
from specclient_local.measure.timed_runs import TimedRun, median_ratio, run_alternating, run_prompts
from specclient_local.request.params import MAX_DRAFT_LENGTH, Method, Parameters


@dataclass(frozen=True, slots=True)
class DepthResult:
    """The measurements of one draft length at one batch size.

    Attributes:
        length: K; 0 is plain decoding.
        alpha: probability that a drafted token is accepted, counted in these runs.
        mean_accepted_length: mean tokens per round.
        closed_form: (1 − α^(K+1)) / ((1 − α)(Kc + 1)), with α pooled over all lengths.
        expected: the same with the measured cost of verification in place of 1.
        measured: speed-up of decoding without prefill, the median of the ratios within a turn.
        tokens_per_s: generated tokens per second of all requests together.
    """

    length: int
    alpha: float | None
    mean_accepted_length: float
    closed_form: float
    expected: float
    measured: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class DepthSweep:
    """The measurements of all draft lengths at one batch size.

    Attributes:
        batch: concurrent requests.
        alpha: probability that a drafted token is accepted, pooled over all lengths.
        cost: c, the cost of a draft pass in plain steps of the same batch.
        rows: one per length, K = 0, 1, …
    """

    batch: int
    alpha: float
    cost: float
    rows: tuple[DepthResult, ...]

    @property
    def best(self) -> DepthResult:
        """The fastest length as timed; the shorter of equal ones."""
        return max(self.rows, key=lambda row: (row.measured, -row.length))

    @property
    def best_expected(self) -> DepthResult:
        """The fastest length as predicted; the shorter of equal ones."""
        return max(self.rows, key=lambda row: (row.expected, -row.length))


def sweep_depths(
    engine: Engine,
    prompts: Seq[Seq[int]],
    *,
    method: Method = "draft",
    lengths: Seq[int] = range(MAX_DRAFT_LENGTH + 1),
    new: int = 128,
    batch: int = 1,
    repeat: int = 3,
    on_progress: Callable[[str], None] = lambda _: None,
) -> DepthSweep:
    """Time greedy decoding with each draft length, alternately.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        method: a method that drafts chains: ``draft`` or ``layer_skip``.
        lengths: values of K; 0 is always included.
        new: most new tokens per answer.
        batch: concurrent requests.
        repeat: timed runs per length, after a warm-up.
        on_progress: called with a description of each run when it starts.

    Raises:
        ConfigurationError: the engine was loaded without that method.
    """
    measured = engine.costs.get(method)
    if measured is None:
        raise ConfigurationError(
            f"there are no costs of method {method!r}: the engine was loaded without it; name a draft "
            "model, or layers of the target that draft."
        )
    costs = measured.at(round(statistics.mean(map(len, prompts)) + new / 2))
    ways = {
        str(k): partial(run_prompts, engine, prompts, _params(method, k, new), batch=batch)
        for k in sorted({0, *lengths})
    }
    runs = run_alternating(ways, repeat, lambda text: on_progress(f"draft length {text}"))
    counted = {int(k): acceptance(made, int(k), new) for k, made in runs.items() if k != "0"}
    alpha = _pooled(list(counted.values()))
    draft, plain = draft_step(costs, batch), costs.round(0, batch)

    def row(length: int, made: Seq[TimedRun]) -> DepthResult:
        own = counted.get(length)
        return DepthResult(
            length=length,
            alpha=None if own is None else own.alpha,
            mean_accepted_length=1.0 if own is None else own.mean_accepted_length,
            closed_form=speed_up(alpha, length, draft),
            expected=expected_tokens(alpha, length) * plain / costs.round(length, batch),
            measured=median_ratio(made, runs["0"], decoding=True),
            tokens_per_s=statistics.median(run.tokens_per_s for run in made),
        )

    return DepthSweep(batch, alpha, draft, tuple(row(int(k), made) for k, made in runs.items()))


def _params(method: Method, length: int, new: int) -> Parameters:
    return {"max_tokens": new, "method": method if length else "plain", "draft_length": length}


def draft_step(costs: RoundCosts, batch: int) -> float:
    """Return c: the cost of a draft pass of ``batch`` sequences, in plain steps of the same batch."""
    share = (batch - 1) / (costs.slots - 1) if costs.slots > 1 else 0.0
    return (costs.draft + (costs.full_draft - costs.draft) * share) / costs.round(0, batch)


def _pooled(counted: Seq[PositionAcceptance]) -> float:
    """Return α pooled over several draft lengths; 0 where nothing was drafted."""
    tried = sum(sum(one.tried) for one in counted)
    return sum(sum(one.kept) for one in counted) / tried if tried else 0.0
