"""Turn candidates that may draft for a target into the one to take: how each fares, and which is fastest.

Each is measured by itself: how often its guesses are kept, place by place, and what its passes cost beside
the target's. That predicts its speed-up at every depth; the best two are then timed against plain decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from specclient.errors import ConfigurationError
from specclient_local.drafting.drafter import TreeWidths
from specclient_local.drafting.round_costs import RoundCosts, interpolate_costs
from specclient_local.engine.engine import Engine
from specclient_local.measure.depth_sweep import draft_step
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, implied_alpha, speed_up
from specclient_local.measure.pick.candidates import DraftCandidate
from specclient_local.measure.timed_runs import TimedRun, answer, median_ratio, run_alternating
from specclient_local.request.params import MAX_DRAFT_LENGTH, Method, Parameters

EngineFactory = Callable[[DraftCandidate], Engine]

ADAPTIVE = "adaptive"
"""The way in which the engine itself chooses depth and tree, round by round."""


@dataclass(frozen=True, slots=True)
class PickSettings:
    """What candidates are measured on.

    Attributes:
        prompts: token ids; tasks: of each prompt, its kind.
        new: most tokens of an answer.
        depth: guesses a round while acceptance is counted, and the deepest that is considered.
        temperature: of the answers.
        repeat: runs that count where speed is timed.
    """

    prompts: Seq[Seq[int]]
    tasks: Seq[str]
    new: int = 64
    depth: int = 6
    temperature: float = 0.0
    repeat: int = 3


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """How a candidate fared.

    Attributes:
        name: as asked for.
        method: what drafts.
        alpha: chance that a guess is kept, those before it being so, over all places.
        by_position: the same at each place.
        by_task: ``alpha`` by kind of prompt.
        cost: c, of a draft pass in plain steps.
        memory: bytes beside the target's.
        depth: guesses a round that are expected to be fastest.
        expected: speed-up at that depth, by acceptance at each place and the measured cost of each pass.
        closed_form: (1 − α^(K+1)) / ((1 − α)(Kc + 1)) at that depth.
        break_even: the least α with which any depth is as fast as plain decoding, by measured costs.
        measured: speed-ups by way (``chain``, tree widths, :data:`ADAPTIVE`), of the best two alone.
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
        """Whether its guesses are kept often enough to pay for making and verifying them."""
        return self.alpha > self.break_even and max(self.measured.values(), default=self.expected) > 1.0


@dataclass(frozen=True, slots=True)
class PickResult:
    """All candidates, and what follows.

    Attributes:
        fared: the candidates, those expected to be fastest first.
        best: the one to take; None where plain decoding is faster than all.
        widths: of its guesses, depth by depth; None where the engine is to choose round by round.
    """

    fared: tuple[CandidateResult, ...]
    best: CandidateResult | None
    widths: TreeWidths | None

    @property
    def speed_up(self) -> float:
        """Measured speed-up of what is to be taken; 1 for plain decoding."""
        return 1.0 if self.best is None else max(self.best.measured.values())


def pick(
    candidates: Seq[DraftCandidate],
    load: EngineFactory,
    asked: PickSettings,
    *,
    told: Callable[[str], None] = lambda _: None,
) -> PickResult:
    """Measure candidates, time the best two, and choose.

    Args:
        candidates: at least one.
        load: makes an engine of the target and a candidate; it is closed when that is measured.
        asked: what they are measured on.
        told: is told what runs now.

    Raises:
        CheckpointError, ConfigurationError: of loading.
    """
    if not candidates:
        raise ConfigurationError("there are no candidates; name what may draft, such as ngram.")
    found: dict[str, CandidateResult] = {}
    for each in candidates:
        told(f"{each.name}: acceptance")
        with load(each) as engine:
            found[each.name] = _fared(each, engine, asked)
    ranked = sorted(found.values(), key=lambda one: -one.expected)
    by_name = {each.name: each for each in candidates}
    for one in ranked[:2]:
        told(f"loading {one.name}")
        with load(by_name[one.name]) as engine:
            found[one.name] = _verified(one, engine, asked, told)
    worth = [one for one in found.values() if one.measured and one.worth]
    best = max(worth, key=lambda one: max(one.measured.values()), default=None)
    return PickResult(tuple(found[one.name] for one in ranked), best, None if best is None else _widths(best))


def rejection_reason(one: CandidateResult) -> str | None:
    """Say in numbers why a candidate is not to be taken; None where it may be."""
    if one.worth:
        return None
    costs = f"a draft pass costs {one.cost:.2f} plain steps"
    if one.alpha <= one.break_even:
        return f"acceptance {one.alpha:.2f} is under the break-even of {one.break_even:.2f} ({costs})"
    if one.measured:
        found = f"{max(one.measured.values()):.2f}× plain decoding as timed"
    else:
        found = f"{one.expected:.2f}× plain decoding expected"
    return f"{found}, at acceptance {one.alpha:.2f} ({costs})"


def _fared(each: DraftCandidate, engine: Engine, asked: PickSettings) -> CandidateResult:
    method = each.method(engine)
    drafter = engine.speculator.drafters.get(method)
    depth = min(asked.depth, getattr(drafter, "depth", asked.depth), MAX_DRAFT_LENGTH)
    run = answer(engine, asked.prompts, _params(method, asked, depth))
    counted = acceptance([run], depth, asked.new)
    alpha = counted.alpha or 0.0
    mean = sum(map(len, asked.prompts)) / len(asked.prompts) + asked.new / 2
    costs = engine.costs[method].at(round(mean))
    # A look-up often has no guess, or fewer than asked for; a model always has as many.
    fill = min(1.0, run.mean_draft_length / depth) if method == "ngram" else 1.0
    best, expected = _deepest(counted, costs, fill)
    draft = 0.0 if method == "ngram" else draft_step(costs, 1)
    return CandidateResult(
        name=each.name,
        method=method,
        alpha=alpha,
        by_position=counted.by_position,
        by_task=_by_task(run, asked, depth),
        cost=draft,
        memory=each.memory,
        depth=best,
        expected=expected,
        closed_form=speed_up(alpha, best, draft),
        break_even=break_even(costs, depth, fill),
        measured={},
    )


def break_even(costs: RoundCosts, depth: int, fill: float = 1.0) -> float:
    """Return the least α with which rounds of some depth are as fast as plain decoding; 1 where none is.

    Args:
        costs: of rounds, as measured.
        depth: the deepest that is considered.
        fill: share of the guesses asked for that are made.
    """
    needed = [(k, _round(costs, k, fill)) for k in range(1, depth + 1)]
    return min(implied_alpha(cost, k) if cost < k + 1 else 1.0 for k, cost in needed)


def _deepest(counted: PositionAcceptance, costs: RoundCosts, fill: float) -> tuple[int, float]:
    """Return the depth that is expected to be fastest, and its speed-up."""
    kept = list(itertools.accumulate(counted.by_position, lambda a, b: a * b))
    tokens = [1.0 + sum(kept[:k]) for k in range(1, len(kept) + 1)]
    ups = [(tokens[k - 1] / _round(costs, k, fill), -k) for k in range(1, len(tokens) + 1)]
    expected, depth = max(ups, default=(1.0 / _round(costs, 1, fill), -1))
    return -depth, expected


def _round(costs: RoundCosts, length: int, fill: float) -> float:
    """Return what a round of so many guesses costs, in plain rounds."""
    made = length * costs.draft + interpolate_costs(costs.verify, length * fill) + costs.beside
    return made / costs.round(0)


def _by_task(run: TimedRun, asked: PickSettings, depth: int) -> dict[str, float]:
    """Return α by kind of prompt, where anything was guessed."""
    found: dict[str, float] = {}
    for task in sorted(set(asked.tasks)):
        own = tuple(one for one, kind in zip(run.answers, asked.tasks, strict=True) if kind == task)
        alpha = acceptance([TimedRun(run.seconds, own)], depth, asked.new).alpha
        if alpha is not None:
            found[task] = alpha
    return found


def _verified(
    one: CandidateResult, engine: Engine, asked: PickSettings, told: Callable[[str], None]
) -> CandidateResult:
    """Time a candidate in the ways it may draft, in turns with plain decoding."""
    trees = [] if one.method == "ngram" else _trees(one.depth)
    ways: dict[str, Parameters] = {
        "plain": _params("plain", asked, None),
        "chain": _params(one.method, asked, one.depth),
        ADAPTIVE: _params(one.method, asked, None),
        **{tree_name(tree): {**_params(one.method, asked, None), "draft_tree": tree} for tree in trees},
    }
    runs = run_alternating(
        {way: partial(answer, engine, asked.prompts, params) for way, params in ways.items()},
        asked.repeat,
        lambda text: told(f"{one.name}: {text}"),
    )
    measured = {way: median_ratio(made, runs["plain"]) for way, made in runs.items() if way != "plain"}
    values = {name: getattr(one, name) for name in CandidateResult.__slots__}
    return CandidateResult(**{**values, "measured": measured})


def _trees(depth: int) -> list[TreeWidths]:
    """Return the trees tried beside a chain: two guesses at the first place, and at the first two."""
    return [(2,) * wide + (1,) * (depth - wide) for wide in (1, 2) if wide <= depth]


def tree_name(widths: TreeWidths) -> str:
    """Return the name of a tree: its widths."""
    return ",".join(map(str, widths))


def _widths(best: CandidateResult) -> TreeWidths | None:
    """Return the widths of the way that was fastest."""
    way = max(best.measured, key=lambda name: best.measured[name])
    if way == ADAPTIVE:
        return None
    return (1,) * best.depth if way == "chain" else tuple(map(int, way.split(",")))


def _params(method: Method, asked: PickSettings, depth: int | None) -> Parameters:
    params: Parameters = {
        "max_tokens": asked.new,
        "method": method,
        "temperature": asked.temperature,
        "seed": 0,
    }
    if depth is not None:
        params["draft_length"] = depth
    return params
