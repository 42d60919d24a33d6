"""Measure the engine at the sizes people run: the bundled target inflated, in 16, 8 and 4 bits, and peers.

    python benchmarks/sizes.py [--size 0.4B] [--formats bfloat16,int8,int4] [--batches 1,2,4,8,16,32]
        [--new 64] [--repeat 3] [--threads 2] [--peers llama.cpp,openvino,vllm] [--perplexity] [--folder DIR]

The target is inflated in width and depth (``inflated.py``): its function, and so the draft's acceptance,
stays, and its passes cost what those of a model of that size cost. The draft is the bundled one. Decoding is
greedy. Each format runs in a process of its own, which reports its memory as the system counts it. Plain
decoding and speculation take turns; figures are medians. Speeds are by elapsed time and, since other programs
affect it less, by processor time: tokens per second of it, times the threads. ``--peers`` names other engines
to measure as well, in the environments that ``make engines`` and ``make peers`` have installed
(``sizes_peers.py``). ``--start`` is put before the command of every measurement, for example
``"taskset -c 0,1"``. ``--perplexity`` measures that of the bundled models on held-out text, in every format.

Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from inflated import SHAPES, inflate
from peer_models import peer_commands, write_prompts
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.answer import AnswerEvent, Piece
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.measure.prompts import held_out
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import Method

FORMATS: dict[str, tuple[str, str | None]] = {
    "float32": ("float32", None),
    "bfloat16": ("bfloat16", None),
    "int8": ("bfloat16", "int8"),
    "int4": ("bfloat16", "int4"),
}
"""Data type and quantisation by name."""

METHODS: tuple[Method, ...] = ("plain", "draft")
_ENGINES = Path(__file__).parents[1] / "build" / "engines"
_PROMPT = 512
_SLOT_CONTEXT = 640
_PROMPTS_PER_STEP = 4
"""Prompts that a step reads: of 64 tokens each, in 256 rows."""

_READING = 9
"""Tokens of an answer, at most, while prompts are read in a step."""

_LEAST_PROMPTS = 4
"""Prompts that are answered for a figure, in turn where fewer are answered at once."""


@dataclass(frozen=True)
class TimedAnswers:
    """Tokens, seconds and processor seconds of answers that ran at once, and the passes that made them."""

    tokens: int
    elapsed: float
    processor: float
    passes: int

    def speeds(self, threads: int) -> tuple[float, float]:
        """Return tokens per elapsed second, and per second of each thread's processor time."""
        return self.tokens / self.elapsed, threads * self.tokens / self.processor


def memory() -> dict[str, int]:
    """Return the process's resident memory and its peak, in MiB; nothing where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    names = {"VmRSS": "resident", "VmHWM": "peak"}
    found = (line.replace(":", "").split()[:2] for line in lines if line.startswith(tuple(names)))
    return {names[name]: int(size) // 1024 for name, size in found}


def answer(engine: Engine, prompts: list[list[int]], method: Method, new: int) -> TimedAnswers:
    """Answer all prompts at once; time ``new`` tokens of each, on average, while all of them run.

    Prompts are read one after the other, so answers are longer than that and are cancelled at the end.
    """
    answers: list[list[AnswerEvent]] = [[] for _ in prompts]
    longest = new + _READING * (len(prompts) + 2)
    numbers = [
        engine.add(ids, events.append, max_tokens=longest, temperature=0, method=method)
        for ids, events in zip(prompts, answers, strict=True)
    ]
    for _ in range(-(-len(prompts) // _PROMPTS_PER_STEP) + 1):
        engine.step()
    before = sum(_tokens(events) for events in answers)
    begun, used = time.perf_counter(), time.process_time()
    tokens = passes = 0
    while tokens < new * len(prompts) and not any(_ended(events) for events in answers):
        engine.step()
        tokens = sum(_tokens(events) for events in answers) - before
        passes += 1
    elapsed, used = time.perf_counter() - begun, time.process_time() - used
    for number in numbers:
        engine.cancel(number)
    while engine.step():
        pass
    return TimedAnswers(tokens, elapsed, used, passes)


def answer_groups(
    engine: Engine, prompts: list[list[int]], batch: int, method: Method, new: int
) -> TimedAnswers:
    """Answer at least ``_LEAST_PROMPTS`` prompts, ``batch`` at once; return the sums."""
    groups = [prompts[i : i + batch] for i in range(0, max(batch, _LEAST_PROMPTS), batch)]
    found = [answer(engine, group, method, new) for group in groups]
    return TimedAnswers(
        sum(each.tokens for each in found),
        sum(each.elapsed for each in found),
        sum(each.processor for each in found),
        sum(each.passes for each in found),
    )


def _ended(events: list[AnswerEvent]) -> bool:
    last = events[-1]
    return not isinstance(last, Piece) or last.generation is not None


def _tokens(events: list[AnswerEvent]) -> int:
    return sum(len(event.token_ids) for event in events if isinstance(event, Piece))


def measure_own(
    folder: Path, name: str, batches: list[int], *, new: int, repeat: int, threads: int
) -> dict[str, Any]:
    """Load the target in a format, and return its figures."""
    torch.set_num_threads(threads)
    dtype, quantize = FORMATS[name]
    load_model(
        BUNDLED / "draft", ModelPlacement(dtype, "cpu", quantize), slots=1, context=64
    )  # imports, compiles
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, begun = memory(), time.perf_counter()
    alone = load_model(folder, ModelPlacement(dtype, "cpu", quantize), slots=1, context=_SLOT_CONTEXT)
    figures: dict[str, Any] = {"format": name, "load_s": time.perf_counter() - begun}
    figures |= {f"{key}_mib": size - before["resident"] for key, size in memory().items()}
    del alone
    options = {"dtype": dtype, "quantize": quantize, "threads": threads, "slots": max(batches)}
    with Engine.load(
        folder, BUNDLED / "draft", draft_quantize=None, context=_SLOT_CONTEXT, prefix_cache=False, **options
    ) as engine:
        prompts = held_out(engine.tokenizer, max(*batches, _LEAST_PROMPTS))
        runs: dict[tuple[Method, int], list[TimedAnswers]] = {(m, b): [] for m in METHODS for b in batches}
        prefills: list[tuple[float, float]] = []
        for turn in range(repeat + 1):
            for (method, batch), taken in runs.items():
                result = answer_groups(engine, prompts, batch, method, new)
                if turn:  # the first turn warms up
                    taken.append(result)
            prefills.append(_prompt_speeds(engine, threads))
        figures["prompt"] = [statistics.median(column) for column in zip(*prefills[1:], strict=True)]
        figures["speeds"] = {
            f"{method} {batch}": [
                statistics.median(c) for c in zip(*(r.speeds(threads) for r in taken), strict=True)
            ]
            for (method, batch), taken in runs.items()
        }
        figures["tokens_per_pass"] = {
            str(batch): statistics.median(r.tokens / r.passes / batch for r in runs["draft", batch])
            for batch in batches
        }
    return figures


def _prompt_speeds(engine: Engine, threads: int) -> tuple[float, float]:
    """Return the tokens per second at which a long prompt is read, by elapsed and by processor time."""
    (ids,) = held_out_text(engine.tokenizer, 1, _PROMPT)
    begun, used = time.perf_counter(), time.process_time()
    events: list[AnswerEvent] = []  # generate() would start a thread, which then steps later requests, too
    engine.add(ids, events.append, max_tokens=1, temperature=0, method="plain")
    while engine.step():
        pass
    used = time.process_time() - used
    return _PROMPT / (time.perf_counter() - begun), threads * _PROMPT / used


def held_out_text(tokenizer: Tokenizer, count: int, length: int) -> list[list[int]]:
    """Return texts of ``length`` tokens, joined from held-out prompts."""
    parts = held_out(tokenizer, count * -(-length // 64))
    joined = [token for ids in parts for token in ids]
    return [joined[i * length : (i + 1) * length] for i in range(count)]


@torch.inference_mode()
def perplexities(names: list[str], texts: int = 32) -> dict[str, dict[str, float]]:
    """Return the perplexity of the bundled target and draft on held-out text, by format."""
    found: dict[str, dict[str, float]] = {}
    for model in ("target", "draft"):
        prompts = held_out(Tokenizer(BUNDLED / model), texts, 256)
        for name in names:
            dtype, quantize = FORMATS[name]
            runner = load_model(BUNDLED / model, ModelPlacement(dtype, "cpu", quantize), slots=1, context=512)
            loss = count = 0.0
            for ids in prompts:
                runner.truncate(0, 0)
                logits = runner.read(0, ids)[:-1].double()
                loss += float(
                    torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")
                )
                count += len(ids) - 1
            found.setdefault(name, {})[model] = math.exp(loss / count)
    return found


def run_child(command: list[str], what: str) -> dict[str, Any] | None:
    """Run a measurement in a process of its own; return the JSON of its last line, or None if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"format"')]
    if not lines:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{what} is not measured: {reason}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def print_table(
    rows: list[dict[str, Any]], batches: list[int], perplexity: dict[str, dict[str, float]]
) -> None:
    """Print the figures of all formats and peers."""
    print(f"{'':<24}{'load s':>8}{'MiB':>7}{'peak':>7}{'prompt':>14}  tokens/s, by elapsed | processor time")
    for row in rows:
        speeds = " | ".join(f"{each:.0f}" for each in row.get("prompt") or [])
        sizes = f"{row.get('resident_mib', 0):>7}{row.get('peak_mib', 0):>7}"
        print(f"{row['format']:<24}{row['load_s']:>8.1f}{sizes}{speeds:>14}")
        for batch in batches:
            pairs = {m: row["speeds"].get(f"{m} {batch}") for m in METHODS}
            if pairs["plain"] and pairs["draft"]:
                plain, draft = pairs["plain"], pairs["draft"]
                ratio = ", ".join(f"{d / p:.2f}" for d, p in zip(draft, plain, strict=True))
                print(
                    f"  {batch:>3} at once: plain {plain[0]:.0f} | {plain[1]:.0f}, draft {draft[0]:.0f} | "
                    f"{draft[1]:.0f}, {row['tokens_per_pass'].get(str(batch), 0):.2f} a pass, × {ratio}"
                )
    for name, models in perplexity.items():
        print(f"perplexity {name:<12}" + ", ".join(f"{model} {value:.3f}" for model, value in models.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SHAPES, default="0.4B", help="shape of the target")
    parser.add_argument("--formats", default="bfloat16,int8,int4", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--batches", default="1,2,4,8,16,32", help="numbers of concurrent requests")
    parser.add_argument("--new", type=int, default=64, help="timed tokens per answer")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions after a warm-up")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--peers", default="", help="other engines: llama.cpp, openvino, vllm")
    parser.add_argument("--peer-batches", default="1,8", help="numbers of concurrent requests for these")
    parser.add_argument("--engines", type=Path, default=_ENGINES, help="folder of their environments")
    parser.add_argument("--start", default="", help="command that starts each measurement's command")
    parser.add_argument("--perplexity", action="store_true", help="of the bundled models in every format")
    parser.add_argument("--folder", type=Path, help="where models are kept; default: nowhere")
    parser.add_argument("--own", help=argparse.SUPPRESS)
    args = parser.parse_args()
    batches = [int(size) for size in args.batches.split(",")]
    if args.own:
        options = {"new": args.new, "repeat": args.repeat, "threads": args.threads}
        print(json.dumps(measure_own(args.folder, args.own, batches, **options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        kept = args.folder or Path(scratch)
        folder = kept / f"target-{args.size}"
        if not folder.is_dir():
            inflate(BUNDLED / "target", folder, SHAPES[args.size])
        common = ["--new", str(args.new), "--repeat", str(args.repeat), "--threads", str(args.threads)]
        batched = ["--batches", args.batches, "--folder", str(folder)]
        commands = {
            name: [sys.executable, __file__, "--own", name, *common, *batched]
            for name in filter(None, args.formats.split(","))
        }
        if args.peers:
            tokenizer, prompts = Tokenizer(folder), Path(scratch, "prompts.json")
            (long,) = held_out_text(tokenizer, 1, _PROMPT)
            write_prompts(prompts, held_out(tokenizer, max(batches)), long)
            arguments = [str(prompts), *common, "--batches", args.peer_batches]
            commands |= peer_commands(
                args.peers.split(","), args.engines, folder, kept=kept, arguments=arguments
            )
        start = shlex.split(args.start)
        rows = [row for name, command in commands.items() if (row := run_child([*start, *command], name))]
    perplexity = perplexities(["float32", *args.formats.split(",")]) if args.perplexity else {}
    print_table(rows, batches, perplexity)
    load = [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    print(
        json.dumps(
            {"size": args.size, "threads": args.threads, "load": load, "rows": rows}
            | {"perplexity": perplexity}
        )
    )


if __name__ == "__main__":
    main()
