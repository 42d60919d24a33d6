"""Two replicas of vLLM on this machine, and their counters, for ``real_replicas.py``."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from real_load import BLOCK, CONTEXT

__all__ = ["BUNDLED", "LENGTHS", "counters", "program_beside", "replicas", "schedule"]

BUNDLED = Path(__file__).resolve().parents[2] / "local" / "specclient_local" / "bundled"
#: Draft lengths from so many requests of a step on, for arms whose length follows the load.
LENGTHS = {1: 5, 2: 3, 3: 2, 13: 0}
#: Blocks of a replica's cache: 24 mean prompts, as in the simulation, and requests at a time.
CACHE_BLOCKS, SLOTS = 320, 32
_START_S, _STOP_S = 240.0, 10.0


def schedule(arm: str) -> dict[int, int]:
    """Return the draft lengths of an arm, by the least number of requests of a step."""
    length = arm.removeprefix("fixed").removeprefix("placed")
    return {1: int(length)} if length.isdigit() else LENGTHS


def program_beside(python: str) -> Path:
    """Return vLLM's program in the environment of an interpreter."""
    return Path(python).with_name("vllm")


def command(python: str, target: Path, port: int, arm: str, more: Sequence[str]) -> list[str]:
    """Return the command of a replica."""
    lengths = schedule(arm)
    longest = max(lengths.values())
    words = [
        python, str(program_beside(python)), "serve", str(target), "--host", "127.0.0.1",
        "--port", str(port), "--served-model-name", "main", "--dtype", "bfloat16",
        "--max-model-len", str(CONTEXT), "--max-num-seqs", str(SLOTS), "--enforce-eager",
        "--block-size", str(BLOCK), "--num-gpu-blocks-override", str(CACHE_BLOCKS),
        "--enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log", *more,
    ]  # fmt: skip
    if not longest:
        return words
    speculation: dict[str, Any] = {
        "method": "draft_model", "model": str(BUNDLED / "draft"), "num_speculative_tokens": longest,
    }  # fmt: skip
    if len(lengths) > 1:
        ends = [*(start - 1 for start in [*lengths][1:]), SLOTS]
        speculation["num_speculative_tokens_per_batch_size"] = [
            [start, end, length] for (start, length), end in zip(lengths.items(), ends, strict=True)
        ]
    return [*words, "--speculative-config", json.dumps(speculation)]


@contextlib.contextmanager
def replicas(
    python: str, target: Path, arm: str, *, arguments: str, prefix: str, logs: Path
) -> Iterator[list[str]]:
    """Run two replicas, each on a processor of its own; yield their base URLs once they answer.

    Args:
        python: the interpreter of the environment with vLLM.
        target: the checkpoint.
        arm: states the draft lengths.
        arguments: further words of the command.
        prefix: words before it, in which ``{core}`` is the number of a processor.
        logs: the folder of their logs.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)
    processes, urls = [], []
    try:
        for number in range(2):
            port = _free_port()
            words = command(python, target, port, arm, shlex.split(arguments))
            before = shlex.split(prefix.format(core=cores[number % len(cores)]))
            log = logs / f"replica{number}.log"
            with log.open("w", encoding="utf-8") as output:
                processes.append(
                    subprocess.Popen(
                        [*before, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                        env=environment, cwd=logs, start_new_session=True,
                    )
                )  # fmt: skip
            urls.append(f"http://127.0.0.1:{port}/v1")
        end = time.monotonic() + _START_S
        while not all(map(_answers, urls)):
            if time.monotonic() > end or any(each.poll() is not None for each in processes):
                raise SystemExit(f"the replicas do not answer; see {logs}")
            time.sleep(0.25)
        yield urls
    finally:
        for signals, seconds in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, 1.0)):
            for each in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, signals)
            for each in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.wait(seconds)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/models", timeout=2):
        return True
    return False


def counters(urls: Sequence[str]) -> dict[str, float]:
    """Return the sums of the replicas' counters of speculation and of the prefix cache."""
    names = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
             "prefix_cache_queries", "prefix_cache_hits", "generation_tokens")  # fmt: skip
    found = dict.fromkeys(names, 0.0)
    for url in urls:
        with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        for name, line in itertools.product(names, lines):
            if line.startswith((f"vllm:{name}_total{{", f"vllm:{name}_total ")):
                found[name] += float(line.rpartition(" ")[2])
    return found
