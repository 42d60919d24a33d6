"""Compare the engine with transformers on one checkpoint pair, and with the speed targets of this project.

    python benchmarks/engine.py [--threads 2] [--repeat 5] [--new 128] [--prompts 4] [--data DIR] [--save]

The reference is ``transformers`` (plain, assisted and prompt-lookup decoding) on the bundled pair, in one
run: all methods alternate on the same prompts, cut from held-out modules to 64 tokens. A figure is the median
of the repetitions, a ratio the median of the ratios within a turn. c, the cost of a draft pass in plain
steps, is timed before every run, and plain decoding is timed again before each draft length that is compared
with theory. Decoding is greedy, in float32, with one request at a time unless stated otherwise; neither side
has an end token, and no prefix cache is used. The prediction is the plain answer with every tenth token
wrong; layer_skip drafts with the target's first three layers. The bundled heads run in a separate engine,
since keeping the hidden states for them slows a plain pass slightly; so do both models in bfloat16, whose
ratios are relative to plain decoding in bfloat16. With ``--data``, accepted lengths by task are measured as
by ``acceptance.py``. Prints tables, then one JSON line; ``--save`` writes it and three plots to
``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import acceptance
import peers
import plots
import torch
from engine_figures import (
    BATCH,
    BESIDE,
    HALF,
    LENGTHS,
    OWN,
    THEIRS,
    Timed,
    depths,
    differences,
    show,
    targets,
    values,
)
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.measure.pass_timing import draft_cost
from specclient_local.measure.prompts import held_out
from specclient_local.measure.timed_runs import TimedAnswer, TimedRun, run_alternating, run_prompts
from specclient_local.request.params import Parameters

RESULTS = Path(__file__).parent / "results"
LAYERS = 3
HEADS = ("bundled:eagle3", "bundled:medusa")


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


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch and the engine")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions after a warm-up")
    parser.add_argument("--new", type=int, default=128, help="new tokens per answer")
    parser.add_argument("--prompts", type=int, default=4, help="number of prompts")
    parser.add_argument("--data", type=Path, help="folder of HumanEval's and Spec-Bench's prompts")
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
    if args.data is not None:
        lengths = {"prompts": 8, "new": args.new, "length": 4, "threads": args.threads}
        figures["accepted_lengths"] = acceptance.table(args.data, **lengths)
        acceptance.show(figures["accepted_lengths"])
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "engine.json").write_text(json.dumps(figures, indent=1) + "\n")
        plots.speeds(figures["tokens_per_s"], RESULTS / "engine_speed.png")
        plots.methods(figures["methods"], RESULTS / "engine_methods.png")
        plots.depths(figures["depths"], cost, RESULTS / "engine_depth.png")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
