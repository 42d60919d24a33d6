"""Measure draft candidates for a target, and select the fastest.

Each candidate is measured alone: its acceptance rate by position, and the costs of its passes. These predict
its speed-up at every depth. The two candidates with the highest prediction are then timed against plain
decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.drafting.drafter import TreeWidths
from specclient_local.drafting.modelless import MODELLESS_DRAFTERS
from specclient_local.drafting.round_costs import RoundCosts, interpolate_costs
from specclient_local.engine.engine import Engine
from specclient_local.measure.depth_sweep import draft_step
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, implied_alpha, speed_up
from specclient_local.measure.pick.candidates import DraftCandidate
from specclient_local.measure.timed_runs import TimedRun, median_ratio, run_alternating, run_prompts
from specclient_local.request.params import MAX_DRAFT_LENGTH, Method, Parameters

EngineFactory = Callable[[DraftCandidate], Engine]

ADAPTIVE = "adaptive"
"""Name of the configuration in which the engine chooses depth and tree in each round."""


@dataclass(frozen=True, slots=True)
class PickSettings:
    """How candidates are measured.

    Attributes:
        prompts: token ids.
        tasks: the kind of each prompt.
        new: most new tokens per answer.
        depth: drafted tokens per round while acceptance is counted; also the largest depth considered.
        temperature: sampling temperature.
        repeat: timed runs per configuration, after a warm-up.
    """

    prompts: Seq[Seq[int]]
    tasks: Seq[str]
    new: int = 64
    depth: int = 6
    temperature: float = 0.0
    repeat: int = 3


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """The measurements of one candidate.

    Attributes:
        name: the candidate's name.
        method: its method.
        alpha: probability that a drafted token is accepted if all before it were; over all positions.
        by_position: the same by position.
        by_task: ``alpha`` by kind of prompt.
        cost: c, the cost of a draft pass in plain steps.
        memory: bytes that it needs in addition to the target.
        depth: drafted tokens per round with the highest expected speed-up.
        expected: speed-up at that depth, by the acceptance at each position and the measured costs.
        closed_form: (1 − α^(K+1)) / ((1 − α)(Kc + 1)) at that depth (arXiv 2211.17192, Theorem 3.8).
        break_even: smallest α at which some depth is as fast as plain decoding, by measured costs.
        measured: measured speed-ups by configuration (``chain``, tree widths, :data:`ADAPTIVE`); only for the
            two candidates with the highest prediction.
    """

    name: str
    method: Method
    alpha: float
    by_position: tuple[float, ...]
    by_task: Mapping[str, float]
    cost: float
    memory: int
    depth: int
    expected: float
    closed_form: float
    break_even: float
    measured: Mapping[str, float]

    @property
    def worth(self) -> bool:
        """Whether it is faster than plain decoding."""
        return self.alpha > self.break_even and max(self.measured.values(), default=self.expected) > 1.0


@dataclass(frozen=True, slots=True)
class PickResult:
    """The measurements of all candidates, and the selection.

    Attributes:
        results: the candidates, in descending order of their expected speed-up.
        best: the selected candidate; None where plain decoding is fastest.
        widths: widths of its trees by level; None where the engine should choose in each round.
    """

    results: tuple[CandidateResult, ...]
    best: CandidateResult | None
    widths: TreeWidths | None

    @property
    def speed_up(self) -> float:
        """Measured speed-up of the selected candidate; 1 for plain decoding."""
        return 1.0 if self.best is None else max(self.best.measured.values())


def pick(
    candidates: Seq[DraftCandidate],
    load: EngineFactory,
    settings: PickSettings,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> PickResult:
    """Measure candidates, time the two with the highest prediction, and select the fastest.

    Args:
        candidates: the candidates, at least one.
        load: loads an engine with the target and a candidate; the engine is closed after its measurement.
        settings: how to measure.
        on_progress: called with a description of each measurement when it starts.

    Raises:
        CheckpointError, ConfigurationError: a candidate cannot be loaded.
    """
    if not candidates:
        raise ConfigurationError("there are no candidates; name at least one draft, such as ngram.")
    results: dict[str, CandidateResult] = {}
    for candidate in candidates:
        on_progress(f"{candidate.name}: acceptance")
        with load(candidate) as engine:
            results[candidate.name] = _measure(candidate, engine, settings)
    ranked = sorted(results.values(), key=lambda result: -result.expected)
    by_name = {candidate.name: candidate for candidate in candidates}
    for result in ranked[:2]:
        on_progress(f"loading {result.name}")
        with load(by_name[result.name]) as engine:
            results[result.name] = _timed(result, engine, settings, on_progress)
    faster = [result for result in results.values() if result.measured and result.worth]
    best = max(faster, key=lambda result: max(result.measured.values()), default=None)
    widths = None if best is None else _fastest_widths(best)
    return PickResult(tuple(results[result.name] for result in ranked), best, widths)


def rejection_reason(result: CandidateResult) -> str | None:
    """Return why a candidate is not faster than plain decoding; None where it is."""
    if result.worth:
        return None
    costs = f"a draft pass costs {result.cost:.2f} plain steps"
    if result.alpha <= result.break_even:
        return f"acceptance {result.alpha:.2f} is under the break-even of {result.break_even:.2f} ({costs})"
    if result.measured:
        speed = f"{max(result.measured.values()):.2f}× plain decoding as timed"
    else:
        speed = f"{result.expected:.2f}× plain decoding expected"
    return f"{speed}, at acceptance {result.alpha:.2f} ({costs})"


def _measure(candidate: DraftCandidate, engine: Engine, settings: PickSettings) -> CandidateResult:
    method = candidate.method(engine)
    drafter = engine.speculator.drafters.get(method)
    depth = min(settings.depth, getattr(drafter, "depth", settings.depth), MAX_DRAFT_LENGTH)
    run = run_prompts(engine, settings.prompts, _params(method, settings, depth))
    counted = acceptance([run], depth, settings.new)
    alpha = counted.alpha or 0.0
    mean = sum(map(len, settings.prompts)) / len(settings.prompts) + settings.new / 2
    costs = engine.costs[method].at(round(mean))
    # A drafter without a model often proposes fewer tokens than requested, or none; a model never does.
    modelless = method in MODELLESS_DRAFTERS
    fill = min(1.0, run.mean_draft_length / depth) if modelless else 1.0
    best, expected = _best_depth(counted, costs, fill)
    draft = 0.0 if modelless else draft_step(costs, 1)
    return CandidateResult(
        name=candidate.name,
        method=method,
        alpha=alpha,
        by_position=counted.by_position,
        by_task=_by_task(run, settings, depth),
        cost=draft,
        memory=candidate.memory,
        depth=best,
        expected=expected,
        closed_form=speed_up(alpha, best, draft),
        break_even=break_even(costs, depth, fill),
        measured={},
    )


def break_even(costs: RoundCosts, depth: int, fill: float = 1.0) -> float:
    """Return the smallest α at which rounds of some depth are as fast as plain decoding; 1 where none are.

    Args:
        costs: measured costs of rounds.
        depth: largest depth considered.
        fill: share of the requested tokens that the drafter proposes on average.
    """
    needed = [(k, _round_cost(costs, k, fill)) for k in range(1, depth + 1)]
    return min(implied_alpha(cost, k) if cost < k + 1 else 1.0 for k, cost in needed)


def _best_depth(counted: PositionAcceptance, costs: RoundCosts, fill: float) -> tuple[int, float]:
    """Return the depth with the highest expected speed-up, and that speed-up."""
    reached = list(itertools.accumulate(counted.by_position, lambda a, b: a * b))
    tokens = [1.0 + sum(reached[:k]) for k in range(1, len(reached) + 1)]
    speed_ups = [(tokens[k - 1] / _round_cost(costs, k, fill), -k) for k in range(1, len(tokens) + 1)]
    expected, depth = max(speed_ups, default=(1.0 / _round_cost(costs, 1, fill), -1))
    return -depth, expected


def _round_cost(costs: RoundCosts, length: int, fill: float) -> float:
    """Return the cost of a round with ``length`` drafted tokens, in plain rounds."""
    cost = length * costs.draft + interpolate_costs(costs.verify, length * fill) + costs.overhead
    return cost / costs.round(0)


def _by_task(run: TimedRun, settings: PickSettings, depth: int) -> dict[str, float]:
    """Return α by kind of prompt, for kinds in which anything was drafted."""
    alphas: dict[str, float] = {}
    for task in sorted(set(settings.tasks)):
        answers = tuple(each for each, kind in zip(run.answers, settings.tasks, strict=True) if kind == task)
        alpha = acceptance([TimedRun(run.seconds, answers)], depth, settings.new).alpha
        if alpha is not None:
            alphas[task] = alpha
    return alphas


def _timed(
    result: CandidateResult, engine: Engine, settings: PickSettings, on_progress: Callable[[str], None]
) -> CandidateResult:
    """Time a candidate's configurations alternately with plain decoding."""
    method, trees = result.method, [] if result.method in MODELLESS_DRAFTERS else _trees(result.depth)
    ways: dict[str, Parameters] = {
        "plain": _params("plain", settings, None),
        "chain": _params(method, settings, result.depth),
        ADAPTIVE: _params(method, settings, None),
        **{tree_name(tree): {**_params(method, settings, None), "draft_tree": tree} for tree in trees},
    }
    runs = run_alternating(
        {way: partial(run_prompts, engine, settings.prompts, params) for way, params in ways.items()},
        settings.repeat,
        lambda text: on_progress(f"{result.name}: {text}"),
    )
    measured = {way: median_ratio(timed, runs["plain"]) for way, timed in runs.items() if way != "plain"}
    return replace(result, measured=measured)


def _trees(depth: int) -> list[TreeWidths]:
    """Return the trees that are timed in addition to a chain: two tokens on the first one or two levels."""
    return [(2,) * wide + (1,) * (depth - wide) for wide in (1, 2) if wide <= depth]


def tree_name(widths: TreeWidths) -> str:
    """Return the name of a tree: its widths, joined by commas."""
    return ",".join(map(str, widths))


def _fastest_widths(best: CandidateResult) -> TreeWidths | None:
    """Return the tree widths of the fastest configuration; None for :data:`ADAPTIVE`."""
    way = max(best.measured, key=lambda name: best.measured[name])
    if way == ADAPTIVE:
        return None
    return (1,) * best.depth if way == "chain" else tuple(map(int, way.split(",")))


def _params(method: Method, settings: PickSettings, depth: int | None) -> Parameters:
    params: Parameters = {
        "max_tokens": settings.new,
        "method": method,
        "temperature": settings.temperature,
        "seed": 0,
    }
    if depth is not None:
        params["draft_length"] = depth
    return params
