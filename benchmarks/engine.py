"""Compare the engine with transformers on one checkpoint pair, and with the targets that were set.

    python benchmarks/engine.py [--threads 2] [--repeat 5] [--new 128] [--prompts 4] [--save]

The reference is ``transformers`` (plain, assisted and prompt-lookup decoding) on the bundled pair, in one
run: all methods alternate on the same prompts, cut from held-out modules to 64 tokens. A figure is the median
of the repetitions, a ratio the median of the ratios within a turn. c, the cost of a draft pass in plain
steps, is timed between all of them, and plain decoding once more before each draft length that is compared
with theory. Decoding is greedy, in float32, with one request at a time unless stated otherwise; neither side
has an end token, and no prefix cache is used. The prediction is the plain answer with every tenth token
wrong; layer_skip drafts with the target's first three layers. The bundled heads run in a separate engine,
since keeping the hidden states for them slows a plain pass slightly; so do both models in bfloat16, whose
ratios are relative to plain decoding in bfloat16. Prints tables, then one JSON line; ``--save`` writes it and
three plots to ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import peers
import plots
import torch
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, speed_up
from specclient_local.measure.pass_timing import draft_cost
from specclient_local.measure.prompts import held_out
from specclient_local.measure.timed_runs import (
    TimedAnswer,
    TimedRun,
    median_ratio,
    run_alternating,
    run_prompts,
)
from specclient_local.request.params import Parameters

RESULTS = Path(__file__).parent / "results"
LENGTHS = range(1, 9)
BATCH = 8
LAYERS = 3
HEADS = ("bundled:eagle3", "bundled:medusa")
OWN, THEIRS = "own: ", "transformers: "
HALF = ", bfloat16"
"""What ways of an engine are called whose matrices are in bfloat16, as the checkpoints have them."""

BESIDE = "plain beside K="
"""What plain runs are called that a draft length is compared with: machines change by the second."""

Timed = TimedRun | peers.Told


def stream(engine: Engine, prompts: Sequence[Sequence[int]], each: Sequence[Parameters]) -> TimedRun:
    """Answer prompts one after the other as a caller of ``engine.stream`` or ``generate`` does."""
    answers: list[TimedAnswer] = []
    begun = time.perf_counter()
    for ids, params in zip(prompts, each, strict=True):
        arrived, rounds = time.perf_counter(), []
        for piece in engine.stream(ids, **params):
            rounds.append(sum(piece.drafted))
            generation = piece.generation
        assert generation is not None
        answers.append(TimedAnswer(generation, time.perf_counter() - arrived, tuple(rounds)))
    return TimedRun(time.perf_counter() - begun, tuple(answers))


def streamed(
    engine: Engine, prompts: Sequence[Sequence[int]], asked: Mapping[str, Parameters]
) -> dict[str, Callable[[], Timed]]:
    """Return a way for each of what may be asked: all prompts, one after the other."""
    return {name: partial(stream, engine, prompts, [each] * len(prompts)) for name, each in asked.items()}


def headed_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the ways of an engine with Medusa and EAGLE heads."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    asked: dict[str, Parameters] = {
        "eagle3": {**base, "method": "eagle"},
        "eagle3, K=4": {**base, "method": "eagle", "draft_length": 4},
        "eagle3, grown tree": {**base, "method": "eagle", "draft_tree": "grow"},
        "medusa": {**base, "method": "medusa"},
        "medusa, tree": {**base, "method": "medusa", "draft_tree": "grow"},
    }
    return streamed(engine, prompts, asked)


def half_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the ways of an engine in bfloat16."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    asked: dict[str, Parameters] = {
        "plain": {**base, "method": "plain"},
        "draft": {**base, "method": "draft"},
        "draft, K=4": {**base, "method": "draft", "draft_length": 4},
        "ngram": {**base, "method": "ngram"},
    }
    return streamed(engine, prompts, {f"{name}{HALF}": each for name, each in asked.items()})


def own_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the engine's ways of decoding, those of them that it was loaded with."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    plain: Parameters = {**base, "method": "plain"}
    draft: Parameters = {**base, "method": "draft"}
    asked: dict[str, Parameters] = {
        "plain": plain,
        "draft": draft,
        **{
            name: asked
            for k in LENGTHS
            for name, asked in (
                (f"{BESIDE}{k}", plain),
                (f"draft, K={k}", {**draft, "draft_length": k}),
            )
        },
        "draft, tree 2-2-1": {**draft, "draft_tree": (2, 2, 1)},
        "draft, grown tree": {**draft, "draft_tree": "grow"},
        "ngram": {**base, "method": "ngram"},
        "layer_skip": {**base, "method": "layer_skip"},
        "union": {**base, "method": "union"},
    }
    able = {name: each for name, each in asked.items() if each["method"] in engine.methods}
    ways = streamed(engine, prompts, able)
    predicted: list[Parameters] = [{**base, "prediction": spoilt(ids)} for ids in ways["plain"]().token_ids]
    ways["prediction"] = partial(stream, engine, prompts, predicted)
    many = [prompts[i % len(prompts)] for i in range(BATCH)]
    ways["plain, stepped"] = partial(run_prompts, engine, many, plain)
    ways[f"plain, batch {BATCH}"] = partial(run_prompts, engine, many, plain, batch=BATCH)
    ways[f"draft, batch {BATCH}"] = partial(run_prompts, engine, many, draft, batch=BATCH)
    return ways


def spoilt(ids: Sequence[int]) -> list[int]:
    """Return an answer of which every tenth token is another one."""
    return [token if i % 10 != 9 else (token + 1) % 256 for i, token in enumerate(ids)]


@dataclass(frozen=True)
class Depth:
    """Drafts of one length beside what theory expects.

    ``alpha`` is counted in these runs; ``closed_form`` is (1 − α^(K+1)) / ((1 − α)(Kc + 1)), c being a draft
    step over a plain step, each timed as a whole call of its runner: what calling a model costs is in both,
    what a round does beside is in neither. ``measured`` has all of it, and leaves the reading of prompts out.
    """

    length: int
    alpha: float
    mean_accepted_length: float
    closed_form: float
    measured: float


def depths(runs: Mapping[str, list[Timed]], cost: float, new: int) -> list[Depth]:
    """Compare each draft length's speed-up with the closed form."""
    found: list[Depth] = []
    for k in LENGTHS:
        own, plain = _runs(runs, f"draft, K={k}"), _runs(runs, f"{BESIDE}{k}")
        counted: PositionAcceptance = acceptance(own, k, new)
        alpha = counted.alpha or 0.0
        measured = median_ratio(own, plain, decoding=True)
        found.append(Depth(k, alpha, counted.mean_accepted_length, speed_up(alpha, k, cost), measured))
    return found


def _runs(runs: Mapping[str, list[Timed]], name: str) -> list[TimedRun]:
    return [run for run in runs[OWN + name] if isinstance(run, TimedRun)]


@dataclass(frozen=True)
class Target:
    """What was to be reached, and what was."""

    name: str
    wanted: float
    reached: float | None

    @property
    def verdict(self) -> str:
        return "not measured" if self.reached is None else "met" if self.reached >= self.wanted else "not met"


def targets(runs: Mapping[str, list[Timed]], found: Sequence[Depth]) -> list[Target]:
    """Set each target of speed beside its figure."""

    def ratio(one: str, other: str) -> float | None:
        if one not in runs or other not in runs:
            return None
        pairs = zip(runs[one], runs[other], strict=True)
        return statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in pairs)

    assisted = max((peers.ASSISTED, peers.DEFAULT), key=lambda name: middle(runs[THEIRS + name]))
    worst = min(found, key=lambda row: row.measured / row.closed_form)
    best = max(found, key=lambda row: row.measured)
    return [
        Target("plain over transformers plain", 1.8, ratio(OWN + "plain", THEIRS + peers.PLAIN)),
        Target(f"draft over transformers {assisted}", 3.0, ratio(OWN + "draft", THEIRS + assisted)),
        Target("draft over own plain", 1.5, ratio(OWN + "draft", OWN + "plain")),
        Target("ngram over transformers prompt lookup", 1.8, ratio(OWN + "ngram", THEIRS + peers.LOOKUP)),
        Target(
            f"plain, batch {BATCH} over batch 1",
            3.0,
            ratio(OWN + f"plain, batch {BATCH}", OWN + "plain, stepped"),
        ),
        Target(f"speed-up over closed form, fastest K={best.length}", 0.85, best.measured / best.closed_form),
        Target(
            f"speed-up over closed form, worst K={worst.length}", 0.85, worst.measured / worst.closed_form
        ),
    ]


def middle(runs: Sequence[Timed]) -> float:
    """Return the median tokens per second."""
    return statistics.median(run.tokens_per_s for run in runs)


def differences(runs: Mapping[str, list[Timed]], judge: peers.Peers) -> list[str]:
    """Say where ways first give other tokens than transformers' plain decoding, and how near a tie it was."""
    expected = runs[THEIRS + peers.PLAIN][0].token_ids
    told: list[str] = []
    for name, made in runs.items():
        for i, (ids, wanted) in enumerate(zip(made[0].token_ids, _as_many(expected, made[0]), strict=True)):
            if ids != wanted:
                at = next(j for j, (a, b) in enumerate(zip(ids, wanted, strict=True)) if a != b)
                prompt = list(judge.prompts[i % len(judge.prompts)])
                margin = judge.margin([*prompt, *wanted[:at]])
                told.append(f"{name}: prompt {i} differs from token {at} on, logits {margin:.1e} apart there")
    return told


def _as_many(expected: list[list[int]], run: Timed) -> list[list[int]]:
    return [expected[i % len(expected)] for i in range(len(run.token_ids))]


@dataclass(frozen=True)
class Method:
    """What a way of drafting came to: accepted of drafted, tokens a target pass, times plain decoding."""

    name: str
    acceptance: float | None
    mean_accepted_length: float
    speed_up: float


def methods(runs: Mapping[str, list[Timed]]) -> list[Method]:
    """Set every way of the own engine with one request at a time beside its plain decoding."""
    found: list[Method] = []
    for name in runs:
        own = _runs(runs, name.removeprefix(OWN)) if name.startswith(OWN) and "batch" not in name else []
        if own and own[-1].mean_accepted_length > 1:
            ups = zip(own, _runs(runs, f"plain{HALF}" if name.endswith(HALF) else "plain"), strict=True)
            ratio = statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in ups)
            last = own[-1]
            short = name.removeprefix(OWN)
            found.append(Method(short, last.acceptance_rate, last.mean_accepted_length, ratio))
    return found


def show(
    runs: Mapping[str, list[Timed]], found: Sequence[Depth], reached: Sequence[Target], cost: float
) -> None:
    """Print the tables."""
    plain = middle(runs[OWN + "plain"])
    print(f"{'':<32}{'tokens/s':>10}{'own plain':>11}{'accepted':>10}{'a pass':>8}")
    for name, made in runs.items():
        if BESIDE in name:
            continue
        last, accepted, length = made[-1], "", ""
        if isinstance(last, TimedRun) and last.acceptance_rate is not None:
            accepted = f"{last.acceptance_rate:.0%}"
        if isinstance(last, TimedRun) and last.mean_accepted_length > 1:
            length = f"{last.mean_accepted_length:.2f}"
        print(f"{name:<32}{middle(made):>10.1f}{middle(made) / plain:>10.2f}×{accepted:>10}{length:>8}")
    print(f"\nc = {cost:.3f}\n{'K':>2}{'α':>7}{'a pass':>8}{'closed form':>13}{'measured':>10}{'share':>8}")
    for row in found:
        print(
            f"{row.length:>2}{row.alpha:>7.2f}{row.mean_accepted_length:>8.2f}{row.closed_form:>12.2f}×"
            f"{row.measured:>9.2f}×{row.measured / row.closed_form:>8.0%}"
        )
    print(f"\n{'target':<52}{'wanted':>8}{'reached':>9}")
    for one in reached:
        figure = "–" if one.reached is None else f"{one.reached:.2f}"
        print(f"{one.name:<52}{one.wanted:>8.2f}{figure:>9}  {one.verdict}")


def values(
    args: argparse.Namespace,
    runs: Mapping[str, list[Timed]],
    found: Sequence[Depth],
    reached: Sequence[Target],
    cost: float,
) -> dict[str, Any]:
    """Return all figures as JSON values."""
    return {
        "threads": args.threads,
        "new_tokens": args.new,
        "prompts": args.prompts,
        "repeat": args.repeat,
        "torch": torch.__version__,
        "transformers": peers.transformers.__version__,
        "load": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "tokens_per_s": {name: middle(made) for name, made in runs.items() if BESIDE not in name},
        "all_tokens_per_s": {name: [run.tokens_per_s for run in made] for name, made in runs.items()},
        "draft_cost": cost,
        "methods": [asdict(row) for row in methods(runs)],
        "depths": [asdict(row) for row in found],
        "targets": [{**asdict(one), "verdict": one.verdict} for one in reached],
    }


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--save", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    peers.quiet()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        target = peers.endless(BUNDLED / "target", Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        alone = partial(Engine.load, target, threads=args.threads, prefix_cache=False)
        with (
            alone(draft, layer_skip=LAYERS, slots=BATCH) as engine,
            alone(heads=HEADS, slots=1) as headed,
            alone(draft, dtype="bfloat16", slots=1) as half,
        ):
            prompts = held_out(engine.tokenizer, args.prompts)
            judge = peers.Peers(target, draft, prompts, args.new)
            own = own_ways(engine, prompts, args.new) | headed_ways(headed, prompts, args.new)
            own |= half_ways(half, prompts, args.new)
            ways: dict[str, Callable[[], Timed]] = {
                **{THEIRS + name: way for name, way in judge.ways.items()},
                **{OWN + name: way for name, way in own.items()},
            }
            costs: list[float | None] = []
            runs = run_alternating(ways, args.repeat, lambda _: costs.append(draft_cost(engine)))
            cost = statistics.median(found for found in costs if found is not None)
        different = differences(runs, judge)
    found = depths(runs, cost, args.new)
    reached = targets(runs, found)
    show(runs, found, reached, cost)
    print("\n" + ("\n".join(different) or "every way gives the tokens of transformers' plain decoding"))
    told = values(args, runs, found, reached, cost)
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "engine.json").write_text(json.dumps(told, indent=1) + "\n")
        plots.speeds(told["tokens_per_s"], RESULTS / "engine_speed.png")
        plots.methods(told["methods"], RESULTS / "engine_methods.png")
        plots.depths(told["depths"], cost, RESULTS / "engine_depth.png")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
