"""Compare the two rules of verification, token by token and as a block, on the bundled pair.

    python benchmarks/verification.py [--threads 1] [--repeat 7] [--new 96] [--prompts 8]

Answers are sampled at temperatures 1 and 0.7, for the held-out prompts of ``benchmarks/engine.py``, by the
draft model and by the EAGLE-3 head, with fixed draft lengths and with the length that measured costs choose.
The rules take turns. Speeds are tokens per second of processor time, which other programs disturb less than
elapsed time; a ratio is the median of the ratios within a turn. Sampled answers differ in length per round by
chance, so the gain in accepted tokens is not taken from them: for every chain that the token rule's runs
draft, both rules' expected numbers of accepted tokens are computed and averaged. No answer has an end token,
and no prefix cache is used. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import peers
import torch
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.decoding import speculate
from specclient_local.decoding.verify import AcceptedPath, acceptance_probability, prefix_chances, verify
from specclient_local.measure.prompts import held_out
from specclient_local.measure.timed_runs import run_alternating
from specclient_local.request.params import VERIFICATIONS, Parameters

TEMPERATURES = (1.0, 0.7)
LENGTHS: dict[str, tuple[int | None, ...]] = {"draft": (2, 4, 6, None), "eagle": (4,)}


@dataclass(frozen=True, slots=True)
class CountedRun:
    """Answers to all prompts: number of tokens and rounds, and the processor time in seconds."""

    tokens: int
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """Both rules with one draft, temperature and length.

    Attributes:
        way: the draft, temperature and length.
        speeds: tokens per second of processor time, by rule.
        speed_ratio: block over token.
        expected: expected tokens per drafted chain, the target's own included, by rule.
    """

    way: str
    speeds: dict[str, float]
    speed_ratio: float
    expected: dict[str, float]


def answer_all(engine: Engine, prompts: Sequence[Sequence[int]], own: Parameters) -> CountedRun:
    """Answer every prompt, one after the other."""
    tokens = rounds = 0
    begun = time.process_time()
    for ids in prompts:
        generation = engine.generate(ids, **own)
        tokens += len(generation.token_ids)
        rounds += generation.speculation.steps or 0
    return CountedRun(tokens, rounds, time.process_time() - begun)


def expected_lengths(run: Callable[[], CountedRun]) -> dict[str, float]:
    """Return the expected tokens per chain by both rules, over the chains that a run drafts."""
    sums = dict.fromkeys(VERIFICATIONS, 0.0)
    chains = 0

    def counting(tree, target, random, rule) -> AcceptedPath:  # noqa: ANN001 - the arguments of verify
        nonlocal chains
        if len(tree):
            chains += 1
            by_token = [
                acceptance_probability(target[i], q, token)
                for i, (token, q) in enumerate(zip(tree.tokens, tree.q, strict=True))
            ]
            sums["token"] += 1.0 + float(np.cumprod(by_token).sum())
            sums["block"] += sum(prefix_chances(tree, target))
        return verify(tree, target, random, rule)

    speculate.verify = counting
    try:
        run()
    finally:
        speculate.verify = verify
    return {rule: total / chains for rule, total in sums.items()}


def rows(engine: Engine, method: str, prompts: Sequence[Sequence[int]], new: int, repeat: int) -> list[Row]:
    """Measure one draft."""
    ways: dict[tuple[str, str], Callable[[], CountedRun]] = {}
    for heat in TEMPERATURES:
        for length in LENGTHS[method]:
            name = f"{method}, temperature {heat:g}, K={'auto' if length is None else length}"
            for rule in VERIFICATIONS:
                own: Parameters = {
                    "max_tokens": new,
                    "temperature": heat,
                    "method": method,
                    "draft_length": length,
                    "verification": rule,
                }  # type: ignore[typeddict-item]
                ways[name, rule] = partial(answer_all, engine, prompts, own)
    runs = run_alternating(ways, repeat)
    found: list[Row] = []
    for name in dict.fromkeys(name for name, _ in ways):
        speeds = {rule: [run.tokens / run.seconds for run in runs[name, rule]] for rule in VERIFICATIONS}
        ratio = statistics.median(a / b for a, b in zip(speeds["block"], speeds["token"], strict=True))
        medians = {rule: statistics.median(own) for rule, own in speeds.items()}
        found.append(Row(name, medians, ratio, expected_lengths(ways[name, "token"])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch and the engine")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions after a warm-up")
    parser.add_argument("--new", type=int, default=96, help="new tokens per answer")
    parser.add_argument("--prompts", type=int, default=8, help="number of prompts")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        target = peers.endless(BUNDLED / "target", Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        load = partial(Engine.load, target, threads=args.threads, prefix_cache=False, slots=1)
        for method, given in (("draft", {"draft": draft}), ("eagle", {"heads": ["bundled:eagle3"]})):
            with load(**given) as engine:
                prompts = held_out(engine.tokenizer, args.prompts)
                found += rows(engine, method, prompts, args.new, args.repeat)
    for row in found:
        speeds = f"{row.speeds['token']:5.0f} → {row.speeds['block']:5.0f} ({row.speed_ratio:.3f} ×)"
        lengths = f"{row.expected['token']:.3f} → {row.expected['block']:.3f}"
        print(f"{row.way:<32} tokens/s {speeds}   tokens a pass {lengths}")
    print(json.dumps({"arguments": vars(args), "rows": [asdict(row) for row in found]}))


if __name__ == "__main__":
    main()
