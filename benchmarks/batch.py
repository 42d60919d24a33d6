"""Measure continuous batching with the bundled pair: tokens per second by the number of concurrent requests.

    python benchmarks/batch.py [--batches 1,2,4,8] [--new 128] [--repeat 5] [--threads 2]

Decoding is greedy, on prompts cut from held-out modules, and does not stop at end tokens. Plain decoding and
draft speculation (the engine chooses the draft length) alternate over all batch sizes in one run. A figure is
the median of the repetitions; the load average is measured at the end. CPU seconds are shown next to elapsed
seconds, since other programs affect them less. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.answer import AnswerEvent, Piece
from specclient_local.measure.prompts import held_out
from specclient_local.request.params import Method

METHODS: tuple[Method, ...] = ("plain", "draft")


def run(engine: Engine, prompts: list[list[int]], method: Method, new: int) -> dict[str, float]:
    """Answer all prompts concurrently; return tokens, elapsed seconds and CPU seconds."""
    answers: list[list[AnswerEvent]] = [[] for _ in prompts]
    begun, used = time.perf_counter(), time.process_time()
    for ids, events in zip(prompts, answers, strict=True):
        engine.add(ids, events.append, max_tokens=new, temperature=0, method=method)
    while engine.step():
        pass
    elapsed, used = time.perf_counter() - begun, time.process_time() - used
    tokens = 0
    for events in answers:
        last = events[-1]
        assert isinstance(last, Piece)
        assert last.generation is not None
        tokens += len(last.generation.token_ids)
    return {"tokens": tokens, "elapsed_s": elapsed, "processor_s": used}


def measure(engine: Engine, batches: list[int], new: int, repeat: int) -> list[dict[str, float | str]]:
    """Time all methods and batch sizes alternately; return a row for each with the medians."""
    prompts = held_out(engine.tokenizer, max(batches))
    taken: dict[tuple[Method, int], list[dict[str, float]]] = {(m, b): [] for m in METHODS for b in batches}
    for turn in range(repeat + 1):
        for (method, batch), runs in taken.items():
            figures = run(engine, prompts[:batch], method, new)
            if turn:  # the first turn warms up
                runs.append(figures)
    rows: list[dict[str, float | str]] = []
    for (method, batch), runs in taken.items():
        row: dict[str, float | str] = {"method": method, "batch": batch}
        for name in ("elapsed", "processor"):
            row[f"tokens_per_{name}_s"] = statistics.median(r["tokens"] / r[f"{name}_s"] for r in runs)
            pairs = zip(taken["plain", batches[0]], runs, strict=True)
            row[f"ratio_{name}"] = statistics.median(
                own["tokens"] / own[f"{name}_s"] * one[f"{name}_s"] / one["tokens"] for one, own in pairs
            )
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", default="1,2,4,8", help="numbers of concurrent requests")
    parser.add_argument("--new", type=int, default=128, help="new tokens per answer")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions after a warm-up")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the engine")
    args = parser.parse_args()
    batches = [int(size) for size in args.batches.split(",")]
    with Engine.load(
        BUNDLED / "target",
        BUNDLED / "draft",
        slots=max(batches),
        threads=args.threads,
        prefix_cache=False,  # the prompts are repeated
    ) as engine:
        rows = measure(engine, batches, args.new, args.repeat)
    print(f"{'method':<8}{'batch':>6}{'tokens/s':>11}{'ratio':>8}{'tokens/cpu-s':>14}{'ratio':>8}")
    for row in rows:
        print(
            f"{row['method']:<8}{row['batch']:>6}{row['tokens_per_elapsed_s']:>11.1f}{row['ratio_elapsed']:>8.2f}"
            f"{row['tokens_per_processor_s']:>14.1f}{row['ratio_processor']:>8.2f}"
        )
    load = [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    print(json.dumps({"threads": args.threads, "new_tokens": args.new, "load": load, "rows": rows}))


if __name__ == "__main__":
    main()
