"""Measure the service times of a vLLM replica: by draft length, requests in progress, prompt and task.

    VLLM_PYTHON benchmarks/fleets/service_times.py DRAFT_LENGTH [--out FILE] [--repeat N]

It runs in the environment of vLLM (``make engines``), with the bundled pair on one processor. Times are
processor time of the engine's steps, so that other work on the machine counts little. Requests of a cell are
added together: the steps until each has its first token are the prefill, the others decode. Every prompt has
another first line, so that no prefix is cached. A line of JSON is appended for each cell.

The target's MLPs are padded with units of zero weights, to 60 million parameters: its answers, and so the
accepted drafts, stay as they are, and its steps cost what those of a model of this size do beside a small
draft.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "local" / "specclient_local" / "bundled"
IN_PROGRESS = (1, 2, 4, 8, 16, 32)
ANSWER = 40
#: Units of each padded MLP.
WIDTH = 8192
#: Prompts: code, of which the draft knows much, and prose, of which it knows less.
CODE = "def area_{0}(width, height):\n    return width * height\n\n\ndef sum_{0}(values):\n    total = 0\n"
PROSE = "On day {0} the ships left the bay and nobody on the shore knew when they would return. "
LENGTHS = {"short": 1, "long": 8}


def prompt_of(task: str, length: str) -> str:
    """Return a prompt that no other one begins like."""
    text = CODE if task == "code" else PROSE
    number = random.randrange(10**6)
    return f"# {number}\n" + "".join(text.format(number + at) for at in range(LENGTHS[length]))


def padded_target(folder: Path) -> Path:
    """Write the bundled target with wider MLPs into a folder, and return it."""
    import torch  # noqa: PLC0415 - as below
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    shutil.copytree(BUNDLED / "target", folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    more = WIDTH - config["intermediate_size"]
    weights = load_file(folder / "model.safetensors")
    for name, matrix in weights.items():
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            weights[name] = torch.cat([matrix, matrix.new_zeros(more, matrix.shape[1])])
        elif name.endswith("down_proj.weight"):
            weights[name] = torch.cat([matrix, matrix.new_zeros(matrix.shape[0], more)], dim=1).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": WIDTH}), encoding="utf-8")
    return folder


def engine_of(target: Path, draft_length: int) -> Any:
    """Return vLLM's engine in this process."""
    from vllm import EngineArgs, LLMEngine  # noqa: PLC0415 - the times of --help

    speculation = {
        "method": "draft_model",
        "model": str(BUNDLED / "draft"),
        "num_speculative_tokens": draft_length,
    }
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(target), dtype="float32", max_model_len=512, enforce_eager=True,
            max_num_seqs=32, speculative_config=speculation if draft_length else None, disable_log_stats=True,
        )
    )  # fmt: skip


def cell(engine: Any, task: str, length: str, count: int) -> dict[str, float]:
    """Return the figures of one cell."""
    from vllm import SamplingParams  # noqa: PLC0415

    params = SamplingParams(temperature=0.0, max_tokens=ANSWER, ignore_eos=True)
    prompts = [prompt_of(task, length) for _ in range(count)]
    for number, prompt in enumerate(prompts):
        engine.add_request(f"{time.monotonic_ns()}-{number}", prompt, params)
    tokens: dict[str, int] = {}
    prompt_tokens = 0
    prefill = decoding = 0.0
    decoded = steps = 0
    while engine.has_unfinished_requests():
        begun = time.process_time()
        outputs = engine.step()
        spent = time.process_time() - begun
        before = sum(tokens.values())
        whole = len(tokens) == count
        for each in outputs:
            tokens[each.request_id] = len(each.outputs[0].token_ids)
            prompt_tokens = len(each.prompt_token_ids)
        ended = sum(value >= ANSWER for value in tokens.values())
        if not whole:
            prefill += spent
        elif not ended:  # all requests are in progress
            decoding += spent
            decoded += sum(tokens.values()) - before
            steps += 1
    return {
        "prompt_tokens": prompt_tokens,
        "prefill_s": prefill / count,
        "step_s": decoding / max(steps, 1),
        "token_s": decoding * count / max(decoded, 1),
        "tokens_per_step": decoded / max(steps, 1) / count,
    }


def main() -> None:
    """Measure one draft length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("draft_length", type=int)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("service_times.jsonl"))
    parser.add_argument("--repeat", type=int, default=2)
    given = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        engine = engine_of(padded_target(Path(folder)), given.draft_length)
    cell(engine, "code", "short", 2)
    cells = itertools.product(range(given.repeat), ("code", "text"), LENGTHS, IN_PROGRESS)
    for _, task, length, count in cells:
        found = cell(engine, task, length, count)
        row = {
            "draft_length": given.draft_length,
            "task": task,
            "length": length,
            "in_progress": count,
            **found,
        }
        with given.out.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}) + "\n"
            )


if __name__ == "__main__":
    main()
