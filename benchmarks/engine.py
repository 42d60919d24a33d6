"""Compare the engine with transformers on one checkpoint pair, and with the speed targets of this project.

    python benchmarks/engine.py [--threads 2] [--repeat 5] [--new 128] [--prompts 4] [--save]

The reference is ``transformers`` (plain, assisted and prompt-lookup decoding) on the bundled pair, in one
run: all methods alternate on the same prompts, cut from held-out modules to 64 tokens. A figure is the median
of the repetitions, a ratio the median of the ratios within a turn. c, the cost of a draft pass in plain
steps, is timed before every run, and plain decoding is timed again before each draft length that is compared
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
"""Suffix of the methods of an engine with matrices in bfloat16, the data type of the checkpoints."""

BESIDE = "plain beside K="
"""Prefix of the plain runs next to each draft length, since the speed of a machine changes within seconds."""

Timed = TimedRun | peers.PeerRun


def stream(engine: Engine, prompts: Sequence[Sequence[int]], params: Sequence[Parameters]) -> TimedRun:
    """Answer prompts one after the other with ``engine.stream``, as a caller does."""
    answers: list[TimedAnswer] = []
    begun = time.perf_counter()
    for ids, own in zip(prompts, params, strict=True):
        arrived, rounds = time.perf_counter(), []
        for piece in engine.stream(ids, **own):
            rounds.append(sum(piece.drafted))
            generation = piece.generation
        assert generation is not None
        answers.append(TimedAnswer(generation, time.perf_counter() - arrived, tuple(rounds)))
    return TimedRun(time.perf_counter() - begun, tuple(answers))


def streamed(
    engine: Engine, prompts: Sequence[Sequence[int]], params: Mapping[str, Parameters]
) -> dict[str, Callable[[], Timed]]:
    """Return functions that answer all prompts one after the other, by the names of their parameters."""
    return {name: partial(stream, engine, prompts, [own] * len(prompts)) for name, own in params.items()}


def headed_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the timed functions of an engine with Medusa and EAGLE heads."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    params: dict[str, Parameters] = {
        "eagle3": {**base, "method": "eagle"},
        "eagle3, K=4": {**base, "method": "eagle", "draft_length": 4},
        "eagle3, grown tree": {**base, "method": "eagle", "draft_tree": "grow"},
        "medusa": {**base, "method": "medusa"},
        "medusa, tree": {**base, "method": "medusa", "draft_tree": "grow"},
    }
    return streamed(engine, prompts, params)


def half_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the timed functions of an engine in bfloat16."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    params: dict[str, Parameters] = {
        "plain": {**base, "method": "plain"},
        "draft": {**base, "method": "draft"},
        "draft, K=4": {**base, "method": "draft", "draft_length": 4},
        "ngram": {**base, "method": "ngram"},
    }
    return streamed(engine, prompts, {f"{name}{HALF}": own for name, own in params.items()})


def own_ways(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> dict[str, Callable[[], Timed]]:
    """Return the timed functions of the methods that an engine was loaded with."""
    base: Parameters = {"max_tokens": new, "temperature": 0.0}
    plain: Parameters = {**base, "method": "plain"}
    draft: Parameters = {**base, "method": "draft"}
    params: dict[str, Parameters] = {
        "plain": plain,
        "draft": draft,
        **{
            name: own
            for k in LENGTHS
            for name, own in (
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
    usable = {name: own for name, own in params.items() if own["method"] in engine.methods}
    ways = streamed(engine, prompts, usable)
    predicted: list[Parameters] = [{**base, "prediction": altered(ids)} for ids in ways["plain"]().token_ids]
    ways["prediction"] = partial(stream, engine, prompts, predicted)
    many = [prompts[i % len(prompts)] for i in range(BATCH)]
    ways["plain, stepped"] = partial(run_prompts, engine, many, plain)
    ways[f"plain, batch {BATCH}"] = partial(run_prompts, engine, many, plain, batch=BATCH)
    ways[f"draft, batch {BATCH}"] = partial(run_prompts, engine, many, draft, batch=BATCH)
    return ways


def altered(ids: Sequence[int]) -> list[int]:
    """Return an answer with every tenth token replaced."""
    return [token if i % 10 != 9 else (token + 1) % 256 for i, token in enumerate(ids)]


@dataclass(frozen=True)
class Depth:
    """The measured speed-up of one draft length, and the speed-up expected by theory.

    Attributes:
        length: K.
        alpha: probability that a drafted token is accepted, counted in these runs.
        mean_accepted_length: mean tokens per round.
        closed_form: (1 − α^(K+1)) / ((1 − α)(Kc + 1)). c is the time of a draft step over that of a plain
            step, each timed as a call of its runner; the other work of a round is in neither.
        measured: speed-up of whole rounds, without prefill.
    """

    length: int
    alpha: float
    mean_accepted_length: float
    closed_form: float
    measured: float


def depths(runs: Mapping[str, list[Timed]], cost: float, new: int) -> list[Depth]:
    """Return the measurements of all draft lengths."""
    rows: list[Depth] = []
    for k in LENGTHS:
        own, plain = _runs(runs, f"draft, K={k}"), _runs(runs, f"{BESIDE}{k}")
        counted: PositionAcceptance = acceptance(own, k, new)
        alpha = counted.alpha or 0.0
        measured = median_ratio(own, plain, decoding=True)
        rows.append(Depth(k, alpha, counted.mean_accepted_length, speed_up(alpha, k, cost), measured))
    return rows


def _runs(runs: Mapping[str, list[Timed]], name: str) -> list[TimedRun]:
    return [run for run in runs[OWN + name] if isinstance(run, TimedRun)]


@dataclass(frozen=True)
class Target:
    """A speed target: the required ratio and the measured one."""

    name: str
    wanted: float
    reached: float | None

    @property
    def verdict(self) -> str:
        return "not measured" if self.reached is None else "met" if self.reached >= self.wanted else "not met"


def targets(runs: Mapping[str, list[Timed]], rows: Sequence[Depth]) -> list[Target]:
    """Return the speed targets with their measured ratios."""

    def ratio(one: str, other: str) -> float | None:
        if one not in runs or other not in runs:
            return None
        pairs = zip(runs[one], runs[other], strict=True)
        return statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in pairs)

    assisted = max((peers.ASSISTED, peers.DEFAULT), key=lambda name: median_speed(runs[THEIRS + name]))
    worst = min(rows, key=lambda row: row.measured / row.closed_form)
    best = max(rows, key=lambda row: row.measured)
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


def median_speed(runs: Sequence[Timed]) -> float:
    """Return the median tokens per second."""
    return statistics.median(run.tokens_per_s for run in runs)


def differences(runs: Mapping[str, list[Timed]], judge: peers.Peers) -> list[str]:
    """Return a line for each answer that differs from transformers' plain decoding.

    The line has the position of the first different token, and the distance of the two highest logits there.
    """
    expected = runs[THEIRS + peers.PLAIN][0].token_ids
    lines: list[str] = []
    for name, timed in runs.items():
        wanted = _repeated(expected, timed[0])
        for i, (ids, expected_ids) in enumerate(zip(timed[0].token_ids, wanted, strict=True)):
            if ids != expected_ids:
                at = next(j for j, (a, b) in enumerate(zip(ids, expected_ids, strict=True)) if a != b)
                prompt = list(judge.prompts[i % len(judge.prompts)])
                margin = judge.margin([*prompt, *expected_ids[:at]])
                lines.append(
                    f"{name}: prompt {i} differs from token {at} on, logits {margin:.1e} apart there"
                )
    return lines


def _repeated(expected: list[list[int]], run: Timed) -> list[list[int]]:
    return [expected[i % len(expected)] for i in range(len(run.token_ids))]


@dataclass(frozen=True)
class Method:
    """The acceptance rate, the mean tokens per target pass and the speed-up of one method."""

    name: str
    acceptance: float | None
    mean_accepted_length: float
    speed_up: float


def methods(runs: Mapping[str, list[Timed]]) -> list[Method]:
    """Return the measurements of the engine's speculative methods with one request at a time."""
    rows: list[Method] = []
    for name in runs:
        own = _runs(runs, name.removeprefix(OWN)) if name.startswith(OWN) and "batch" not in name else []
        if own and own[-1].mean_accepted_length > 1:
            pairs = zip(own, _runs(runs, f"plain{HALF}" if name.endswith(HALF) else "plain"), strict=True)
            ratio = statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in pairs)
            last = own[-1]
            short = name.removeprefix(OWN)
            rows.append(Method(short, last.acceptance_rate, last.mean_accepted_length, ratio))
    return rows


def show(
    runs: Mapping[str, list[Timed]], rows: Sequence[Depth], reached: Sequence[Target], cost: float
) -> None:
    """Print the tables."""
    plain = median_speed(runs[OWN + "plain"])
    print(f"{'':<32}{'tokens/s':>10}{'own plain':>11}{'accepted':>10}{'per pass':>9}")
    for name, timed in runs.items():
        if BESIDE in name:
            continue
        last, accepted, length = timed[-1], "", ""
        if isinstance(last, TimedRun) and last.acceptance_rate is not None:
            accepted = f"{last.acceptance_rate:.0%}"
        if isinstance(last, TimedRun) and last.mean_accepted_length > 1:
            length = f"{last.mean_accepted_length:.2f}"
        speed = median_speed(timed)
        print(f"{name:<32}{speed:>10.1f}{speed / plain:>10.2f}×{accepted:>10}{length:>9}")
    print(f"\nc = {cost:.3f}\n{'K':>2}{'α':>7}{'per pass':>9}{'closed form':>13}{'measured':>10}{'share':>8}")
    for row in rows:
        print(
            f"{row.length:>2}{row.alpha:>7.2f}{row.mean_accepted_length:>9.2f}{row.closed_form:>12.2f}×"
            f"{row.measured:>9.2f}×{row.measured / row.closed_form:>8.0%}"
        )
    print(f"\n{'target':<52}{'required':>9}{'measured':>9}")
    for target in reached:
        figure = "–" if target.reached is None else f"{target.reached:.2f}"
        print(f"{target.name:<52}{target.wanted:>9.2f}{figure:>9}  {target.verdict}")


def values(
    args: argparse.Namespace,
    runs: Mapping[str, list[Timed]],
    rows: Sequence[Depth],
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
        "tokens_per_s": {name: median_speed(timed) for name, timed in runs.items() if BESIDE not in name},
        "all_tokens_per_s": {name: [run.tokens_per_s for run in timed] for name, timed in runs.items()},
        "draft_cost": cost,
        "methods": [asdict(row) for row in methods(runs)],
        "depths": [asdict(row) for row in rows],
        "targets": [{**asdict(target), "verdict": target.verdict} for target in reached],
    }


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch and the engine")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions after a warm-up")
    parser.add_argument("--new", type=int, default=128, help="new tokens per answer")
    parser.add_argument("--prompts", type=int, default=4, help="number of prompts")
    parser.add_argument("--save", action="store_true", help="save figures and plots to benchmarks/results")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    peers.quiet()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        target = peers.endless(BUNDLED / "target", Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        load = partial(Engine.load, target, threads=args.threads, prefix_cache=False)
        with (
            load(draft, layer_skip=LAYERS, slots=BATCH) as engine,
            load(heads=HEADS, slots=1) as headed_engine,
            load(draft, dtype="bfloat16", slots=1) as half_engine,
        ):
            prompts = held_out(engine.tokenizer, args.prompts)
            judge = peers.Peers(target, draft, prompts, args.new)
            own = own_ways(engine, prompts, args.new) | headed_ways(headed_engine, prompts, args.new)
            own |= half_ways(half_engine, prompts, args.new)
            ways: dict[str, Callable[[], Timed]] = {
                **{THEIRS + name: way for name, way in judge.ways.items()},
                **{OWN + name: way for name, way in own.items()},
            }
            costs: list[float | None] = []
            runs = run_alternating(ways, args.repeat, lambda _: costs.append(draft_cost(engine)))
            cost = statistics.median(value for value in costs if value is not None)
        different = differences(runs, judge)
    rows = depths(runs, cost, args.new)
    reached = targets(runs, rows)
    show(runs, rows, reached, cost)
    print("\n" + ("\n".join(different) or "all methods generate the tokens of transformers' plain decoding"))
    figures = values(args, runs, rows, reached, cost)
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "engine.json").write_text(json.dumps(figures, indent=1) + "\n")
        plots.speeds(figures["tokens_per_s"], RESULTS / "engine_speed.png")
        plots.methods(figures["methods"], RESULTS / "engine_methods.png")
        plots.depths(figures["depths"], cost, RESULTS / "engine_depth.png")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
