"""Compare drafts by heads, by the draft model and plain decoding of the bundled target.

    python benchmarks/heads.py [--heads FOLDER …] [--threads 1] [--repeat 5] [--new 96] [--prompts 4] [--json]

Greedy and at temperature 1; one request at a time, in float32, on prompts of 64 tokens that are cut from
held-out modules. All ways of drafting alternate in one run. Speeds are medians over the repetitions, with
the prompt; a ratio to plain decoding is the median of the ratios within a turn. Tokens per pass are those of
all repetitions. The target has no end token, and no prefix cache is used. Greedy answers are checked to be
those of plain decoding.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import peers
import torch
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.measure.prompts import held_out
from specclient_local.measure.timed_runs import TimedRun, median_ratio, run_alternating, run_prompts
from specclient_local.request.params import Parameters

BUNDLED_HEADS = ("bundled:eagle3", "bundled:medusa")
LENGTHS: tuple[int | None, ...] = (None, 4, 6)
"""Draft lengths; None is the length by measured cost."""

PLAIN = "plain"


def ways_of(
    engine: Engine, methods: Sequence[str], prompts: Sequence[Sequence[int]], base: Parameters
) -> dict[str, Callable[[], TimedRun]]:
    """Return timed functions of an engine's methods at each draft length, and of grown trees."""
    found: dict[str, Any] = {}
    for method in methods:
        own: Any = {**base, "method": method}
        if method == PLAIN:
            found[PLAIN] = own
            continue
        for length in LENGTHS:
            name = method if length is None else f"{method}, {length} drafted"
            found[name] = own if length is None else {**own, "draft_length": length}
        found[f"{method}, grown tree of 4 levels"] = {**own, "draft_tree": "grow", "draft_length": 4}
    return {name: partial(run_prompts, engine, prompts, params) for name, params in found.items()}


def row(name: str, runs: Sequence[TimedRun], plain: Sequence[TimedRun]) -> dict[str, Any]:
    """Return the figures of one way of drafting."""
    drafted = sum(run.drafted or 0 for run in runs)
    return {
        "name": name,
        "tokens_per_s": statistics.median(run.tokens_per_s for run in runs),
        "over_plain": median_ratio(runs, plain),
        "accepted": sum(run.accepted for run in runs) / drafted if drafted else None,
        "tokens_per_pass": sum(run.tokens for run in runs) / sum(run.steps for run in runs),
    }


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table."""
    print(f"\n| {title} | tokens/s | over plain | accepted of drafted | tokens per pass |")
    print("|---|---|---|---|---|")
    for each in rows:
        share = "" if each["accepted"] is None else f"{each['accepted']:.0%}"
        print(
            f"| {each['name']} | {each['tokens_per_s']:,.0f} | {each['over_plain']:.2f} | {share} "
            f"| {each['tokens_per_pass']:.2f} |",
            flush=True,
        )


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--heads", nargs="*", default=[], help="folders of further heads of the bundled target"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch and the engine")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions after a warm-up")
    parser.add_argument("--new", type=int, default=96, help="new tokens per answer")
    parser.add_argument("--prompts", type=int, default=4, help="number of prompts")
    parser.add_argument("--json", action="store_true", help="print one line of JSON after the tables")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    peers.quiet()
    torch.set_num_threads(args.threads)
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        target = peers.endless(BUNDLED / "target", Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        load = partial(Engine.load, target, threads=args.threads, prefix_cache=False, slots=1)
        with load(draft) as pair, load(heads=[*BUNDLED_HEADS, *args.heads]) as headed:
            prompts = held_out(pair.tokenizer, args.prompts)
            methods = [m for m in headed.methods if m in ("eagle", "medusa", "peagle")]
            for temperature in (0.0, 1.0):
                base: Parameters = {"max_tokens": args.new, "temperature": temperature}
                ways = ways_of(pair, (PLAIN, "draft"), prompts, base)
                ways |= ways_of(headed, methods, prompts, base)
                runs = run_alternating(ways, args.repeat)
                plain = runs[PLAIN]
                if temperature == 0.0:
                    wrong = [name for name, own in runs.items() if own[0].token_ids != plain[0].token_ids]
                    assert not wrong, f"answers differ from plain decoding: {wrong}"
                title = "greedy" if temperature == 0.0 else "temperature 1"
                results[title] = [row(name, own, plain) for name, own in runs.items()]
                show(title, results[title])
    if args.json:
        print(json.dumps({"threads": args.threads, "new": args.new, "prompts": args.prompts, **results}))


if __name__ == "__main__":
    main()
