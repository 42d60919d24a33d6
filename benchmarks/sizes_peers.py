"""Measure another engine for ``sizes.py``, by the interpreter of the environment that has it.

    python sizes_peers.py ENGINE NAME TARGET DRAFT PROMPTS
        [--batches 1,8] [--methods plain,draft] [--new 64] [--repeat 3] [--threads 2]

ENGINE is one of

    llama.cpp  by its bindings ``xllamacpp``; TARGET and DRAFT are GGUF files
    openvino   OpenVINO GenAI; folders that ``optimum-cli export openvino`` wrote
    vllm       vLLM for CPUs; folders of checkpoints

PROMPTS is a JSON file of token ids: for each request its prompt, and last a long prompt. Prints one JSON line
with the fields of ``sizes.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

_DEPTH: Final = 4
"""Drafted tokens of a pass, as in the defaults of llama.cpp's bindings and in vLLM's examples."""

_CONTEXT: Final = 640
_CACHE_GB: Final = 1


class Peer(Protocol):
    """An engine with a target and, maybe, a draft.

    Args:
        target, draft: files or folders in the engine's own format.
        slots: requests that it answers at once.
        threads: number of threads.
    """

    def __init__(self, target: str, draft: str | None, *, slots: int, threads: int) -> None: ...

    def answer(self, prompts: list[list[int]], new: int) -> int:
        """Answer all prompts at once by ``new`` greedy tokens each; return the number of tokens."""
        ...


class LlamaCpp:
    """llama.cpp's server within this process; see :class:`Peer`."""

    def __init__(self, target: str, draft: str | None, *, slots: int, threads: int) -> None:
        import xllamacpp  # noqa: PLC0415 - each engine has an environment of its own

        params = xllamacpp.CommonParams()
        params.model.path, params.n_parallel, params.n_ctx = target, slots, slots * _CONTEXT
        params.n_gpu_layers, params.warmup = 0, False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        if draft is not None:
            own = params.speculative
            own.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            own.draft.mparams.path, own.draft.n_max = draft, _DEPTH
            own.draft.cpuparams.n_threads = own.draft.cpuparams_batch.n_threads = threads
        self._server = xllamacpp.Server(params)

    def answer(self, prompts: list[list[int]], new: int) -> int:
        """See :class:`Peer`."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(lambda ids: self._complete(ids, new), prompts))

    def _complete(self, ids: list[int], new: int) -> int:
        body = {"prompt": ids, "n_predict": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        request = urllib.request.Request(
            f"{self._server.listening_address}/completion",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            return int(json.load(response)["tokens_predicted"])


class OpenVino:
    """OpenVINO GenAI's pipeline with continuous batching; see :class:`Peer`."""

    def __init__(self, target: str, draft: str | None, *, slots: int, threads: int) -> None:
        import openvino_genai as genai  # noqa: PLC0415

        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = _CACHE_GB, slots
        options: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
        if draft is not None:
            options["draft_model"] = genai.draft_model(draft, "CPU", INFERENCE_NUM_THREADS=threads)
        self._speculates, self._config = draft is not None, genai.GenerationConfig
        self._pipeline = genai.ContinuousBatchingPipeline(target, scheduler, "CPU", options)

    def answer(self, prompts: list[list[int]], new: int) -> int:
        """See :class:`Peer`."""
        import numpy as np  # noqa: PLC0415
        import openvino  # noqa: PLC0415

        config = self._config()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new, True, False
        if self._speculates:
            config.num_assistant_tokens = _DEPTH
        inputs = [openvino.Tensor(np.array([ids], dtype=np.int64)) for ids in prompts]
        found = self._pipeline.generate(inputs, [config] * len(inputs))
        return sum(len(result.m_generation_ids[0]) for result in found)


class Vllm:
    """vLLM for CPUs, without compilation; see :class:`Peer`."""

    def __init__(self, target: str, draft: str | None, *, slots: int, threads: int) -> None:
        variables = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(_CACHE_GB),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "OMP_NUM_THREADS": str(threads),
        }
        os.environ.update(variables)
        import vllm  # noqa: PLC0415

        options: dict[str, Any] = {}
        if draft is not None:
            method = {"method": "draft_model", "model": draft, "num_speculative_tokens": _DEPTH}
            options["speculative_config"] = method
        self._sampling = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=target,
            dtype="bfloat16",
            max_model_len=_CONTEXT,
            max_num_seqs=slots,
            enforce_eager=True,
            enable_prefix_caching=False,
            **options,
        )

    def answer(self, prompts: list[list[int]], new: int) -> int:
        """See :class:`Peer`."""
        sampling = self._sampling(temperature=0, max_tokens=new, ignore_eos=True)
        found = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return sum(len(result.outputs[0].token_ids) for result in found)


ENGINES: Final[dict[str, type[Peer]]] = {"llama.cpp": LlamaCpp, "openvino": OpenVino, "vllm": Vllm}


def _descendants() -> Iterator[Path]:
    """Yield the folder of this process in ``/proc`` and those of the processes that it started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    for number in parents:
        above = number
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            yield Path("/proc", str(number))


def processor_time() -> float:
    """Return the processor seconds of this process and of those that it started."""
    ticks = 0
    for folder in _descendants():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(peer: Peer, prompts: list[list[int]], new: int, threads: int) -> tuple[float, float]:
    """Answer prompts at once; return tokens per elapsed second, and per second of a thread's processor time.

    The time to read the prompts is measured by answers of one token, and subtracted.
    """
    taken: list[tuple[float, float]] = []
    tokens = 0
    for length in (1, new):
        begun, used = time.perf_counter(), processor_time()
        tokens = peer.answer(prompts, length)
        taken.append((time.perf_counter() - begun, processor_time() - used))
    (read, read_used), (elapsed, used) = taken
    tokens -= len(prompts)
    return tokens / (elapsed - read), threads * tokens / max(used - read_used, 1e-9)


def prompt_speeds(peer: Peer, ids: list[int], threads: int) -> tuple[float, float]:
    """Return the tokens per second at which a long prompt is read, by elapsed and by processor time."""
    begun, used = time.perf_counter(), processor_time()
    peer.answer([ids], 1)
    elapsed, used = time.perf_counter() - begun, processor_time() - used
    return len(ids) / elapsed, threads * len(ids) / max(used, 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=ENGINES)
    for name in ("name", "target", "draft", "prompts"):
        parser.add_argument(name)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--methods", default="plain,draft")
    for name, value in (("--new", 64), ("--repeat", 3), ("--threads", 2)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    *prompts, long = json.loads(Path(args.prompts).read_text(encoding="utf-8"))
    batches, threads = [int(size) for size in args.batches.split(",")], args.threads
    figures: dict[str, Any] = {"format": args.name, "speeds": {}, "tokens_per_pass": {}}
    for method in args.methods.split(","):
        begun = time.perf_counter()
        draft = args.draft if method == "draft" else None
        peer = ENGINES[args.engine](args.target, draft, slots=max(batches), threads=threads)
        figures.setdefault("load_s", time.perf_counter() - begun)
        for batch in batches:
            runs = [timed(peer, prompts[:batch], args.new, threads) for _ in range(args.repeat + 1)][1:]
            figures["speeds"][f"{method} {batch}"] = [statistics.median(c) for c in zip(*runs, strict=True)]
        if draft is None:
            reads = [prompt_speeds(peer, long, threads) for _ in range(args.repeat + 1)][1:]
            figures["prompt"] = [statistics.median(column) for column in zip(*reads, strict=True)]
        del peer
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
