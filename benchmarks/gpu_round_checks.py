"""Checks of the engine's rounds on a CUDA device: prefill, recordings, gaps, sampling, identity, engines.

Each takes whether to run with a small shape on the CPU, and returns figures by name.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from gpu_bench import Bench
from gpu_layer_checks import Figures, device_of, wait
from gpu_measures import TINY_PLAN, Plan, Results
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.launch_ahead import LaunchAheadSpeculator
from specclient_local.decoding.round_entry import RoundResult
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.engine.engine import Engine
from specclient_local.request.params import Method

_CODE = "def fibonacci(n):\n"
_NEW = 96
_REPLAYS = 5
"""Runs of a profiled round, with the two that warm up."""

_OPTIONS: dict[str, Any] = {
    "eagle": {"method": "eagle", "heads": "bundled:eagle3"},
    "medusa": {"method": "medusa", "heads": "bundled:medusa"},
}
"""Options of methods that need heads."""


def bench(tiny: bool, batches: tuple[int, ...]) -> Bench:
    """Return the pair of the benchmark for these batch sizes."""
    plan = TINY_PLAN if tiny else Plan("cuda", torch.bfloat16)
    plan = dataclasses.replace(plan, batches=batches, rounds=8 if tiny else 16)
    return Bench(plan, Results(Path("unwritten"), 0.0, lambda: 0.0), tiny=tiny)


def _free(tiny: bool) -> int:
    return 0 if tiny else torch.cuda.mem_get_info()[0]


def prefill(tiny: bool) -> Figures:
    """Time prompts of lengths that have and have not occurred before."""
    pair, found = bench(tiny, (1,)).pair, Figures()
    for i, length in enumerate((256, 257, 300, 311, 400, 256, 257, 900)):
        tokens = [1] * (length // 16 if tiny else length)
        pair.target.truncate(0, 0)
        wait(device_of(tiny))
        begun = time.perf_counter()
        pair.target.prefill(0, tokens)
        wait(device_of(tiny))
        found[f"{i}: {length} tokens, ms"] = 1e3 * (time.perf_counter() - begun)
    return found


def recordings(tiny: bool) -> Figures:
    """Measure seconds and bytes of the first round of every shape."""
    own, rows = bench(tiny, (1, 3) if tiny else (1, 4, 16, 64)), []
    own.plan = dataclasses.replace(own.plan, warm=0, rounds=1)
    for batch in own.plan.batches:
        for depth in (0, 1, 2, 3, 4, 7):
            own.decode(batch, depth, temperature=0.0, forget=False)  # prompts are read here
            free, begun, count = _free(tiny), time.perf_counter(), own.pair.target.recorder.recorded
            own.decode(batch, depth, temperature=1.0)
            rows.append(
                {
                    "batch": batch,
                    "depth": depth,
                    "seconds": round(time.perf_counter() - begun, 3),
                    "mib": (free - _free(tiny)) >> 20,
                    "recorded": own.pair.target.recorder.recorded - count,
                }
            )
    return {"first rounds": rows, "recordings": own.pair.target.recorder.recorded}


def gaps(tiny: bool) -> Figures:
    """Time rounds of the engine, and replays of the same recordings without the host's work."""
    own, found = bench(tiny, (1, 3) if tiny else (1, 16, 64)), Figures()
    for batch in own.plan.batches:
        for depth in (0, 4):
            wall = own.decode(batch, depth, temperature=0.0)["seconds_a_round"]
            device = own.replay_seconds()
            found[f"{batch} requests, depth {depth}"] = {
                "round_ms": 1e3 * wall,
                "device_ms": 1e3 * device,
                "host_share": 1.0 - device / wall,
            }
    return found


def ahead(tiny: bool) -> Figures:
    """Time rounds that wait for the last one's tokens, and rounds that are launched before; greedy.

    Times are of whole loops, with the host's work between rounds but without that on text and streams.
    """
    own, found = bench(tiny, (1, 3) if tiny else (1, 16, 64)), Figures()
    drafters: dict[Method, Drafter] = {"draft": DraftModel(own.pair.draft, own.config.vocab_size)}
    kinds = {"waits": DeviceSpeculator, "ahead": LaunchAheadSpeculator}
    speculators = {name: kind(own.pair.target, drafters) for name, kind in kinds.items()}
    for batch in own.plan.batches:
        for depth in (0, 4):
            timed = {name: _timed_rounds(own, each, batch, depth) for name, each in speculators.items()}
            seconds = {name: taken for name, (taken, _) in timed.items()}
            found[f"{batch} requests, depth {depth}"] = {
                **{f"{name}_ms": 1e3 * taken for name, taken in seconds.items()},
                "ahead_over_waits": seconds["ahead"] / seconds["waits"],
                "same": timed["ahead"][1] == timed["waits"][1],
            }
    return found


def _timed_rounds(
    own: Bench, speculator: DeviceSpeculator, batch: int, depth: int
) -> tuple[float, list[list[int]]]:
    """Return the mean seconds of a round of greedy requests, and their tokens."""
    requests = [own.request(slot, depth, 0.0, None) for slot in range(batch)]
    for request in requests:
        while not speculator.prefill(request):
            pass
    begun = 0.0
    for turn in range(own.plan.warm + own.plan.rounds):
        if turn == own.plan.warm:
            begun = time.perf_counter()
        for request, outcome in zip(requests, speculator.round_ahead(requests), strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            for token in () if outcome is None else outcome.tokens:
                request.take(token)
    seconds = (time.perf_counter() - begun) / own.plan.rounds
    tokens = [request.new_tokens for request in requests]
    for request in requests:
        speculator.end(request)
    return seconds, tokens


def sampling(tiny: bool) -> Figures:
    """Time greedy and sampled rounds of a large batch."""
    own, found = bench(tiny, (1, 3) if tiny else (1, 64)), Figures()
    kinds = {"greedy": {"temperature": 0.0}, "sampled": {}, "top-p": {"top_p": 0.9}}
    for batch in own.plan.batches:
        for name, settings in kinds.items():
            own.settings = settings
            own.decode(batch, 4, temperature=1.0)
            found[f"{batch} requests, {name}, device ms"] = 1e3 * own.replay_seconds()
            if not tiny:
                found[f"{batch} requests, {name}, peak GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def identity(tiny: bool) -> Figures:
    """Compare greedy answers with and without known drafts; return the first tokens that differ."""
    own, found = bench(tiny, (1,)), Figures()
    for seed in range(2 if tiny else 6):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(own.config.vocab_size, (own.plan.prompt,), generator=generator)
        own.prompts[0] = drawn.tolist()
        plain = own.answer(40 if tiny else 128)
        for depth in (1, 4, 7):
            request = own.request(0, depth, 0.0, list(plain))
            while not own.speculator.prefill(request):
                pass
            while len(request.new_tokens) < len(plain) - 10:
                (outcome,) = own.speculator.round([request])
                assert isinstance(outcome, RoundResult)
                for token in outcome.tokens:
                    request.take(token)
            pairs = enumerate(zip(plain, request.new_tokens, strict=False))
            found[f"prompt {seed}, depth {depth}"] = next((i for i, (a, b) in pairs if a != b), "same")
            own.speculator.end(request, broken=True)
    return found


def profile(tiny: bool) -> Figures:
    """Count the launches of one plain round and one round with drafts, and sum their time by kernel."""
    from torch.profiler import ProfilerActivity  # noqa: PLC0415 - slow to import
    from torch.profiler import profile as profiler  # noqa: PLC0415

    own, found = bench(tiny, (1, 3) if tiny else (1, 64)), Figures()
    for batch in own.plan.batches:
        for depth in (0, 4):
            own.decode(batch, depth, temperature=1.0)
            with profiler(activities=[ProfilerActivity.CPU if tiny else ProfilerActivity.CUDA]) as taken:
                own.replay_seconds(count=_REPLAYS - 2)
            times: Counter[str] = Counter()
            counts: Counter[str] = Counter()
            for event in taken.key_averages():
                times[event.key[:70]] += event.cpu_time_total if tiny else event.device_time_total
                counts[event.key[:70]] += event.count
            found[f"{batch} requests, depth {depth}"] = {
                "launches": sum(counts.values()) / _REPLAYS,
                "top, with launches and µs": [
                    (key, counts[key] / _REPLAYS, round(spent / _REPLAYS))
                    for key, spent in times.most_common(16)
                ],
            }
    return found


def two_engines(tiny: bool) -> Figures:
    """Let two engines record at the same time in two threads."""
    engines = [
        Engine.load("demo", device=device_of(tiny), graphs="on", prefix_cache=False, method="draft")
        for _ in range(2)
    ]
    found, expected = Figures(), _greedy("cpu", "draft")
    threads = [
        threading.Thread(target=lambda i=i: found.update({f"engine {i}": _text(engines[i]) == expected}))  # type: ignore[misc]
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.close()
    return {"same text as on the CPU": found}


def bundled(tiny: bool) -> Figures:
    """Compare the bundled pair's greedy answers by method with plain decoding, and that with the CPU's.

    The figure is the number of equal characters, or ``all``. Also returns the speed of one request by method.
    """
    device, found = device_of(tiny), Figures()
    on_cpu = _greedy("cpu", "plain")
    for dtype in ("float32",) if tiny else ("float32", "bfloat16"):
        plain = ""
        for method in ("plain", "eagle") if tiny else ("plain", "draft", "ngram", "eagle", "medusa"):
            try:
                text, figures = _answers(device, dtype, method)
            except Exception as error:  # noqa: BLE001 - the result of this method; others go on
                found[f"{method}, {dtype}"] = f"{type(error).__name__}: {error}"[:200]
                continue
            plain = plain or text
            same = {"as plain": _agreement(text, plain), "as float32 on the CPU": _agreement(text, on_cpu)}
            found[f"{method}, {dtype}"] = same | figures
    return found


def _answers(device: str, dtype: str, method: str) -> tuple[str, Figures]:
    """Return a greedy answer, whether a sampled one is reproduced, and tokens per second."""
    options = _OPTIONS.get(method, {"method": method})
    with Engine.load("demo", device=device, dtype=dtype, graphs="on", **options) as engine:
        text, rates = _text(engine), []
        for _ in range(1 if device == "cpu" else 3):
            begun = time.perf_counter()
            engine.generate(_CODE, max_tokens=_NEW, temperature=0.0)
            rates.append(_NEW / (time.perf_counter() - begun))
        sampled = {engine.generate(_CODE, max_tokens=24, temperature=0.9, seed=7).text for _ in range(2)}
    return text, {"reproduced": len(sampled) == 1, "tokens_per_s": statistics.median(rates)}


def _agreement(text: str, other: str) -> int | str:
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), "all")


def _text(engine: Engine) -> str:
    return engine.generate(_CODE, max_tokens=_NEW, temperature=0.0).text


def _greedy(device: str, method: str) -> str:
    """Return the bundled target's greedy answer."""
    with Engine.load("demo", device=device, method=method) as engine:
        return _text(engine)
