"""Measure speculation while requests join and leave a batch, beside plain decoding of the same requests.

    python benchmarks/arrivals.py [--size 0.4B] [--formats bfloat16,int8,int4] [--loads 0.2,0.5,1.5]
        [--requests 24] [--slots 16] [--repeat 3] [--threads 2] [--trace FILE] [--folder DIR]

Requests arrive by a Poisson process, with prompts of 16 to 384 and answers of 16 to 128 tokens, log-uniform.
``--trace`` takes the times and lengths of a published trace instead: a file that
:func:`specclient.routing.simulate.arrivals.read_arrivals` reads, its lengths limited to these ranges. A load
is the rate of arrivals over the rate at which plain decoding answers the same requests when all are there at
once: at 0.2 mostly one request runs, at 1.5 slots are full and requests wait. Both methods get the same
arrivals, by the clock, in turn; their greedy answers must be equal. The models are those of ``sizes.py``.

A ratio is that of one turn, speculation over plain decoding; the median over turns is printed with the least
and the greatest. Above 1 is better for throughput, below 1 for latency and for the seconds that the engine
worked. Latency is counted from the arrival. Each format runs in a process of its own. Prints a table, then
one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inflated import SHAPES, inflate
from sizes import FORMATS, run_child
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.answer import AnswerEvent, Piece
from specclient_local.measure.prompts import held_out
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import Method

from specclient.routing.simulate.arrivals import read_arrivals

PROMPT, ANSWER = (16, 384), (16, 128)
"""Least and greatest number of tokens."""

_RATIOS = ("throughput", "mean", "p95", "work")


@dataclass(frozen=True)
class TimedRequest:
    """A request: arrivals before it, in units of the mean gap, its prompt, and the tokens of its answer."""

    at: float
    prompt: list[int]
    answer: int


@dataclass(frozen=True)
class Outcome:
    """The times of a run in which all requests were answered.

    Attributes:
        seconds: from the first arrival to the last answer's end.
        latencies: seconds of each request from its arrival to its end.
        work: seconds that the engine worked.
        answers: the tokens of each answer.
    """

    seconds: float
    latencies: list[float]
    work: float
    answers: list[list[int]]

    def figures(self) -> dict[str, float]:
        """Return tokens per second, mean and 95th percentile of the latency, and seconds of work."""
        tokens = sum(map(len, self.answers))
        p95 = sorted(self.latencies)[int(0.95 * (len(self.latencies) - 1))]
        found = (tokens / self.seconds, statistics.mean(self.latencies), p95, self.work)
        return dict(zip(_RATIOS, found, strict=True))


def make_requests(tokenizer: Tokenizer, count: int, trace: Path | None, seed: int = 0) -> list[TimedRequest]:
    """Return requests whose mean gap is 1, of a trace or by a Poisson process."""
    draw = random.Random(seed)
    if trace is None:
        rows, at = [], 0.0
        for _ in range(count):
            rows.append((at, _log_uniform(draw, PROMPT), _log_uniform(draw, ANSWER)))
            at += draw.expovariate(1.0)
    else:
        calls = read_arrivals(trace, most=count).calls
        rows = [(call.at, call.prompt_tokens, call.completion_tokens) for call in calls]
    gap = rows[-1][0] / (len(rows) - 1)
    texts = held_out(tokenizer, len(rows), PROMPT[1])
    return [
        TimedRequest(at / gap, text[: _limited(prompt, PROMPT)], _limited(answer, ANSWER))
        for (at, prompt, answer), text in zip(rows, texts, strict=True)
    ]


def _log_uniform(draw: random.Random, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return round(low * (high / low) ** draw.random())


def _limited(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def answer_arrivals(engine: Engine, requests: Sequence[TimedRequest], gap: float, method: Method) -> Outcome:
    """Answer requests that arrive ``gap`` seconds apart on average; 0: all at once."""
    events: list[list[AnswerEvent]] = [[] for _ in requests]
    ends: dict[int, float] = {}
    due = [request.at * gap for request in requests]
    next_one, busy, begun = 0, engine.busy_s, time.perf_counter()
    while len(ends) < len(requests):
        now = time.perf_counter() - begun
        while next_one < len(requests) and due[next_one] <= now:
            request = requests[next_one]
            engine.add(
                request.prompt,
                _Sink(events[next_one], ends, next_one, begun),
                max_tokens=request.answer,
                temperature=0,
                method=method,
            )
            next_one += 1
        if not engine.step() and next_one < len(requests):
            time.sleep(max(0.0, due[next_one] - (time.perf_counter() - begun)))
    answers = [[t for e in own if isinstance(e, Piece) for t in e.token_ids] for own in events]
    latencies = [ends[i] - due[i] for i in range(len(requests))]
    return Outcome(max(ends.values()) - due[0], latencies, engine.busy_s - busy, answers)


class _Sink:
    """Keeps the events of a request, and the time of its end."""

    def __init__(self, events: list[AnswerEvent], ends: dict[int, float], number: int, begun: float) -> None:
        self._events, self._ends, self._number, self._begun = events, ends, number, begun

    def __call__(self, event: AnswerEvent) -> None:
        self._events.append(event)
        if not isinstance(event, Piece):
            raise event
        if event.generation is not None:
            self._ends[self._number] = time.perf_counter() - self._begun


def measure(folder: Path, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Load the target in a format, and return the figures of both methods at all loads."""
    dtype, quantize = FORMATS[name]
    options: dict[str, Any] = {"dtype": dtype, "quantize": quantize, "draft_quantize": None}
    options |= {"threads": args.threads, "slots": args.slots, "context": sum((PROMPT[1], ANSWER[1])) + 64}
    with Engine.load(folder, BUNDLED / "draft", prefix_cache=False, **options) as engine:
        requests = make_requests(engine.tokenizer, args.requests, args.trace)
        answer_arrivals(engine, requests[: args.slots], 0.0, "draft")  # warms up
        plain = answer_arrivals(engine, requests, 0.0, "plain")
        capacity = len(requests) / plain.seconds
        rows = {}
        for load in map(float, args.loads.split(",")):
            turns: list[dict[Method, dict[str, float]]] = []
            for _ in range(args.repeat):
                turn: dict[Method, dict[str, float]] = {}
                for method in ("plain", "draft"):
                    outcome = answer_arrivals(engine, requests, 1 / (load * capacity), method)
                    if outcome.answers != plain.answers:
                        raise AssertionError(f"{name}, load {load}: answers of {method} differ")
                    turn[method] = outcome.figures()
                turns.append(turn)
            rows[str(load)] = _summary(turns)
        return {"format": name, "capacity": capacity, "loads": rows}


def _summary(turns: list[dict[Method, dict[str, float]]]) -> dict[str, Any]:
    """Return medians of both methods' figures and of their ratios, with the least and the greatest ratio."""
    found: dict[str, Any] = {
        method: {key: statistics.median(turn[method][key] for turn in turns) for key in _RATIOS}
        for method in ("plain", "draft")
    }
    ratios = {key: [turn["draft"][key] / turn["plain"][key] for turn in turns] for key in _RATIOS}
    return found | {"ratios": {key: [statistics.median(r), min(r), max(r)] for key, r in ratios.items()}}


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the figures of all formats."""
    for row in rows:
        print(f"{row['format']}: plain decoding answers {row['capacity']:.2f} requests/s")
        for load, found in row["loads"].items():
            speeds = "{plain[throughput]:.0f} -> {draft[throughput]:.0f} tokens/s".format(**found)
            means = "latency {plain[mean]:.2f} -> {draft[mean]:.2f} s".format(**found)
            ratios = ", ".join(
                f"{key} {middle:.2f} ({least:.2f} to {most:.2f})"
                for key, (middle, least, most) in found["ratios"].items()
            )
            print(f"  load {load}: {speeds}, {means}; ratios: {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SHAPES, default="0.4B", help="shape of the target")
    parser.add_argument("--formats", default="bfloat16,int8,int4", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--loads", default="0.2,0.5,1.5", help="arrivals over what plain decoding answers")
    parser.add_argument("--requests", type=int, default=24, help="requests of a turn")
    parser.add_argument("--slots", type=int, default=16, help="requests that run at once")
    parser.add_argument("--repeat", type=int, default=3, help="turns, after a warm-up")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--trace", type=Path, help="trace whose times and lengths are used")
    parser.add_argument("--folder", type=Path, help="where the model is kept; default: nowhere")
    parser.add_argument("--start", default="", help="command that starts each measurement's command")
    parser.add_argument("--own", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.folder or Path(scratch)) / f"target-{args.size}"
        if not folder.is_dir():
            inflate(BUNDLED / "target", folder, SHAPES[args.size])
        if args.own:
            print(json.dumps(measure(folder, args.own, args)))
            return
        command = [sys.executable, *sys.argv, "--folder", str(folder.parent)]
        names = args.formats.split(",")
        found = (run_child([*shlex.split(args.start), *command, "--own", name], name) for name in names)
        rows = [row for row in found if row is not None]
    print_table(rows)
    print(json.dumps({"size": args.size, "slots": args.slots, "threads": args.threads, "rows": rows}))


if __name__ == "__main__":
    main()
