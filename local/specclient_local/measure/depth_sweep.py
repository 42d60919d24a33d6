"""Turn measured acceptance and measured costs into the draft length that is fastest, computed and timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.engine.engine import Engine
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, speed_up, tokens_a_round
from specclient_local.measure.timed_runs import TimedRun, answer, median_ratio, run_alternating
from specclient_local.request.params import MAX_DRAFT_LENGTH, Method, Parameters


@dataclass(frozen=True, slots=True)
class DepthResult:
    """What drafts of one length are worth to so many requests at once.

    Attributes:
        length: K, 0 being plain decoding.
        alpha: chance that a token is accepted, as counted in these runs.
        mean_accepted_length: tokens a round.
        closed_form: (1 − α^(K+1)) / ((1 − α)(Kc + 1)), with α of all lengths together.
        expected: the same with the verification's measured cost in place of 1.
        measured: speed-up of decoding (prompts' reading left out), the median of the ratios within one turn.
        tokens_per_s: of all requests together.
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
    """All lengths timed for one batch.

    Attributes:
        batch: requests at once.
        alpha: chance that a token is accepted, over all lengths.
        cost: c, of a draft pass in plain steps of so many requests.
        rows: K = 0, 1, …
    """

    batch: int
    alpha: float
    cost: float
    rows: tuple[DepthResult, ...]

    @property
    def best(self) -> DepthResult:
        """The fastest as timed; the shorter of equal ones."""
        return max(self.rows, key=lambda row: (row.measured, -row.length))

    @property
    def best_expected(self) -> DepthResult:
        """The fastest as computed."""
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
    told: Callable[[str], None] = lambda _: None,
) -> DepthSweep:
    """Time greedy answers with drafts of each length, in turn.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        method: what drafts chains of the length asked for: ``draft`` or ``layer_skip``.
        lengths: K; 0 is always among them.
        new: most tokens of an answer.
        batch: prompts at a time.
        repeat: runs that count.
        told: is told what runs now.

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
        str(k): partial(answer, engine, prompts, _params(method, k, new), batch=batch)
        for k in sorted({0, *lengths})
    }
    runs = run_alternating(ways, repeat, lambda text: told(f"draft length {text}"))
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
            expected=tokens_a_round(alpha, length) * plain / costs.round(length, batch),
            measured=median_ratio(made, runs["0"], decoding=True),
            tokens_per_s=statistics.median(run.tokens_per_s for run in made),
        )

    return DepthSweep(batch, alpha, draft, tuple(row(int(k), made) for k, made in runs.items()))


def _params(method: Method, length: int, new: int) -> Parameters:
    return {"max_tokens": new, "method": method if length else "plain", "draft_length": length}


def draft_step(costs: RoundCosts, batch: int) -> float:
    """Return c: what a draft pass of so many sequences costs, in plain steps of as many."""
    share = (batch - 1) / (costs.slots - 1) if costs.slots > 1 else 0.0
    return (costs.draft + (costs.full_draft - costs.draft) * share) / costs.round(0, batch)


def _pooled(counted: Seq[PositionAcceptance]) -> float:
    """Return α over drafts of several lengths; 0 where nothing was drafted."""
    tried = sum(sum(one.tried) for one in counted)
    return sum(sum(one.kept) for one in counted) / tried if tried else 0.0
