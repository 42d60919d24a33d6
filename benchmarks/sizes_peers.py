"""Measure llama.cpp for ``sizes.py``, in the environment beside that has its bindings (``xllamacpp``).

    python sizes_peers.py NAME TARGET DRAFT PROMPTS [--batches 1,8] [--new 64] [--repeat 3] [--threads 2]

TARGET and DRAFT are GGUF files, PROMPTS a JSON file of token ids: for each request its prompt, and last a
long prompt. Prints one JSON line with the fields of ``sizes.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import xllamacpp

_DEPTH: Final = 4
"""Drafted tokens of a pass, as in the bindings' own default for draft models."""


def served(target: str, draft: str | None, *, slots: int, context: int, threads: int) -> Any:
    """Start a server for a target, which answers ``slots`` requests at once."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_parallel, params.n_ctx = target, slots, slots * context
    params.n_gpu_layers, params.warmup = 0, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if draft is not None:
        own = params.speculative
        own.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        own.draft.mparams.path, own.draft.n_max = draft, _DEPTH
        own.draft.cpuparams.n_threads = own.draft.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


def complete(server: Any, ids: list[int], new: int) -> int:
    """Return the number of tokens of an answer."""
    body = {"prompt": ids, "n_predict": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(
        f"{server.listening_address}/completion",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        return int(json.load(response)["tokens_predicted"])


def timed(server: Any, prompts: list[list[int]], new: int, threads: int) -> tuple[float, float]:
    """Answer prompts at once; return tokens per elapsed second, and per second of a thread's processor time.

    The time to read the prompts is measured by answers of one token, and subtracted.
    """
    taken: list[tuple[float, float]] = []
    tokens = 0
    for length in (1, new):
        begun, used = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(len(prompts)) as pool:
            tokens = sum(pool.map(lambda ids: complete(server, ids, length), prompts))  # noqa: B023 - used here
        taken.append((time.perf_counter() - begun, time.process_time() - used))
    (read, read_used), (elapsed, used) = taken
    return (tokens - len(prompts)) / (elapsed - read), threads * (tokens - len(prompts)) / (used - read_used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("name", "target", "draft", "prompts"):
        parser.add_argument(name)
    parser.add_argument("--batches", default="1,8")
    for name, value in (("--new", 64), ("--repeat", 3), ("--threads", 2)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    *prompts, long = json.loads(Path(args.prompts).read_text(encoding="utf-8"))
    batches, threads = [int(size) for size in args.batches.split(",")], args.threads
    figures: dict[str, Any] = {"format": args.name, "speeds": {}, "tokens_per_pass": {}}
    for method, draft in (("plain", None), ("draft", args.draft)):
        begun = time.perf_counter()
        server = served(args.target, draft, slots=max(batches), context=640, threads=threads)
        figures.setdefault("load_s", time.perf_counter() - begun)
        for batch in batches:
            runs = [timed(server, prompts[:batch], args.new, threads) for _ in range(args.repeat + 1)][1:]
            figures["speeds"][f"{method} {batch}"] = [statistics.median(c) for c in zip(*runs, strict=True)]
        if draft is None:
            reads: list[tuple[float, float]] = []
            for _ in range(args.repeat + 1):
                begun, used = time.perf_counter(), time.process_time()
                complete(server, long, 1)
                used = time.process_time() - used
                reads.append((len(long) / (time.perf_counter() - begun), threads * len(long) / used))
            figures["prompt"] = [statistics.median(column) for column in zip(*reads[1:], strict=True)]
        del server
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
