"""The figures of ``engine.py``: speeds, draft lengths beside theory, methods, speed targets, differences."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import peers
import torch
from specclient_local.measure.expected_speedup import PositionAcceptance, acceptance, speed_up
from specclient_local.measure.timed_runs import TimedRun, median_ratio

LENGTHS = range(1, 9)
BATCH = 8
OWN, THEIRS = "own: ", "transformers: "
HALF = ", bfloat16"
"""Suffix of the methods of an engine with matrices in bfloat16, the data type of the checkpoints."""

BESIDE = "plain beside K="
"""Prefix of the plain runs next to each draft length, since the speed of a machine changes within seconds."""

Timed = TimedRun | peers.PeerRun


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
