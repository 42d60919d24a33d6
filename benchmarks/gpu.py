"""Measure an accelerator: plain decoding relative to memory bandwidth, and speculation relative to theory.

    python benchmarks/gpu.py [--minutes 9] [--stages checks,plain,…] [--tiny] [--resume] [--out FOLDER]

A random model of Llama 3 8B's shape in bfloat16 (``synthetic``), in rounds as the engine runs them:

- ``checks``: the checklist of ``gpu_checklist``, each check in a process of its own.
- ``plain``: greedy decoding at batch size 1 without drafts; bytes read per second, compared with a copy and a
  triad.
- ``free``: greedy rounds whose draft tokens are known beforehand and cost nothing, relative to plain rounds.
- ``batches``: plain rounds of 1 to 64 requests.
- ``eagle``: rounds with an EAGLE-3 head (``gpu_heads``), and the speed-up that they give at an acceptance of
  0.75.
- ``grid``: pairs with acceptance rates of 0.6, 0.7 and 0.8, with 1 to 8 drafted tokens for 1 to 64 requests,
  sampled at temperature 1, compared with the closed form (1 − α^(K+1)) / ((1 − α)(K c + 1)) of the measured
  acceptance α and draft cost c.
- ``pages``: plain rounds, drafts and long prompts with the target's cache in pages, relative to a contiguous
  one in the same run; and the requests that share a prefix which the same memory holds.
- ``policy``: draft lengths that follow the measured costs and acceptance, as the engine chooses them,
  relative to plain rounds: the same pairs, and one with an acceptance of 0.3, for 1 to 64 requests.
- ``peer``: the same pairs in transformers' plain and assisted generation, one request.
- ``quantized``: the plain target with its weights in fp8, int8 and int4, greedy.

Stages for which no time is left are listed as not run. Results are written after every figure to ``gpu.json``
and to plots in the same folder; a later run adds its stages to the file. Prints a table per stage, then one
JSON line. ``--resume`` skips stages and checks that have results already. ``--tiny`` runs everything with a
small shape on the CPU, to test the program itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from gpu_bench import Bench
from gpu_checklist import NAMES, run_checklist
from gpu_measures import TINY_PLAN, Plan, Results, needed, theory
from synthetic import LLAMA_8B

__all__ = ["STAGES", "TINY_PLAN", "Bench", "Results", "main", "theory"]

STAGES = ("checks", "plain", "free", "batches", "eagle", "pages", "grid", "policy", "quantized", "peer")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="measuring time")
    parser.add_argument("--stages", default=",".join(STAGES), help="stages to run, separated by commas")
    parser.add_argument("--tiny", action="store_true", help="use a small shape on the CPU")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="folder for figures and plots"
    )
    parser.add_argument("--resume", action="store_true", help="skip stages and checks that have results")
    args = parser.parse_args(arguments)
    stages = args.stages.split(",")
    if unknown := set(stages) - set(STAGES):
        parser.error(f"unknown --stages {', '.join(sorted(unknown))}; choose from {', '.join(STAGES)}")
    if not args.tiny and not torch.cuda.is_available():
        parser.error("no CUDA device is available; use --tiny to test the program on the CPU")
    plan = TINY_PLAN if args.tiny else Plan("cuda", torch.bfloat16)
    if not args.tiny:
        size, free = needed(LLAMA_8B, plan), torch.cuda.mem_get_info()[0]
        if size > free:
            parser.error(
                f"the stages need {size / 2**30:.0f} GiB of memory, but {free / 2**30:.0f} GiB are free"
            )
    results = Results(args.out, time.monotonic() + 60 * args.minutes, time.monotonic)
    if args.resume:
        stages = [
            stage for stage in stages if stage == "checks" or not results.figures.get(stage, {}).get("rows")
        ]
    if "checks" in stages:
        stages.remove("checks")  # they run in other processes, before this one fills the device's memory
        results.figures["checks"] = run_checklist(NAMES, args.out, tiny=args.tiny, resume=args.resume)
        results.write()
    if stages:
        _measure(Bench(plan, results, tiny=args.tiny), stages)
    from gpu_plots import draw  # noqa: PLC0415 - slow to import; the figures are already saved

    draw(results.figures, args.out)
    print(json.dumps(results.figures))


def _measure(bench: Bench, stages: Sequence[str]) -> None:
    """Run stages while there is time; one that fails leaves its reason in the results."""
    for stage in stages:
        if not bench.results.begin(stage):
            continue
        try:
            getattr(bench, stage)()
        except (RuntimeError, ImportError) as error:  # such as out of memory or no torchao
            bench.results.figures[stage]["not_run"] = f"{type(error).__name__}: {error}"
            bench.results.write()


if __name__ == "__main__":
    main()
