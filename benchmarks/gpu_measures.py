"""Measurements on a device: durations of runs, memory bandwidth, and the speed-up expected by theory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from specclient_local.model.config import DecoderConfig

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of all measurements.

    Attributes:
        device: the device to measure.
        dtype: data type of the weights.
        lower: number of layers of the draft.
        prompt: tokens per prompt.
        context: positions per slot.
        rounds: timed rounds per figure.
        warm: rounds before them that are not timed.
        copied: bytes of each array of the copies that measure the memory bandwidth.
        batches: numbers of concurrent requests.
        depths: draft lengths.
        acceptances: acceptance rates to calibrate.
        sampled: requests per calibration step.
        steps: bisection steps of a calibration.
        new: new tokens per answer of transformers.
    """

    device: str
    dtype: torch.dtype
    lower: int = 2
    prompt: int = 260
    context: int = 1024
    rounds: int = 24
    warm: int = 3
    copied: int = 4 << 30
    batches: tuple[int, ...] = (1, 4, 16, 64)
    depths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    acceptances: tuple[float, ...] = (0.6, 0.7, 0.8)
    sampled: int = 32
    steps: int = 7
    new: int = 128


TINY_PLAN = Plan(
    "cpu",
    torch.float32,
    prompt=20,
    context=110,
    rounds=6,
    warm=1,
    copied=1 << 20,
    batches=(1, 3),
    depths=(1, 3),
    acceptances=(0.7,),
    sampled=3,
    steps=3,
    new=8,
)


@dataclass(slots=True)
class Results:
    """The figures by stage; saved after every figure.

    Attributes:
        folder: folder of ``gpu.json``.
        ends: end of the measuring time, in seconds of ``clock``.
        clock: returns monotonic seconds.
        figures: the figures, including those of earlier runs.
    """

    folder: Path
    ends: float
    clock: Callable[[], float]
    figures: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        file = self.folder / "gpu.json"
        if file.is_file():
            self.figures = json.loads(file.read_text(encoding="utf-8"))

    @property
    def time_is_up(self) -> bool:
        """Whether the measuring time is over."""
        return self.clock() >= self.ends

    def begin(self, stage: str) -> bool:
        """Clear a stage; return False, and record the reason, if no time is left for it."""
        self.figures[stage] = {"not_run": "no time was left"} if self.time_is_up else {"rows": []}
        self.write()
        return not self.time_is_up

    def add(self, stage: str, row: Row) -> None:
        """Add, save and print a figure."""
        self.figures[stage]["rows"].append(row)
        self.write()
        print(
            f"{stage:<10}" + "  ".join(f"{name} {_shown(value)}" for name, value in row.items()), flush=True
        )

    def write(self) -> None:
        """Save all figures."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "gpu.json").write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")


def theory(alpha: float, depth: int, cost: float) -> float:
    """Return the closed form of the speed-up (Leviathan et al., arXiv 2211.17192, Theorem 3.8)."""
    tokens = depth + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (depth + 1)) / (1.0 - alpha)
    return tokens / (depth * cost + 1.0)


def needed(config: DecoderConfig, plan: Plan) -> int:
    """Return an estimate of the peak memory of the stages in bytes.

    It consists of the weights, a copy of the upper layers' unscaled output projections, the KV caches of
    target and draft, and the logits of the largest round: one copy in the model's data type, six in float64.
    """
    c, each = config, torch.empty(0, dtype=plan.dtype).element_size()
    weights = (c.parameters + c.layers * c.hidden_size * (c.heads * c.head_dim + c.intermediate_size)) * each
    position = 2 * (c.layers + plan.lower) * c.kv_heads * c.head_dim * each
    rows = max(plan.batches) * (max(plan.depths) + 1)
    return weights + max(plan.batches) * plan.context * position + rows * c.vocab_size * (each + 6 * 8)


def bandwidth(plan: Plan, repeats: int = 20) -> float:
    """Return the bytes per second of a copy (1 read, 1 write) or a triad (2 reads, 1 write); the maximum."""
    count = plan.copied // torch.empty(0, dtype=plan.dtype).element_size()
    a, b, c = (torch.ones(count, dtype=plan.dtype, device=plan.device) for _ in range(3))
    return max(
        2 * plan.copied / timed(lambda: a.copy_(b), repeats, plan),
        3 * plan.copied / timed(lambda: torch.add(b, c, alpha=0.5, out=a), repeats, plan),
    )


def timed(run: Callable[[], object], count: int, plan: Plan) -> float:
    """Return the mean seconds per run of ``count`` queued runs, after two warm-up runs."""
    for _ in range(2):
        run()
    wait(plan)
    begun = time.perf_counter()
    for _ in range(count):
        run()
    wait(plan)
    return (time.perf_counter() - begun) / count


def wait(plan: Plan) -> None:
    """Wait until the device is idle."""
    if plan.device != "cpu":
        torch.cuda.synchronize()


def machine(plan: Plan) -> Row:
    """Return the device, the versions of torch and CUDA, and the data type."""
    named = torch.cuda.get_device_name(plan.device) if plan.device != "cpu" else "cpu"
    return {"device": named, "torch": torch.__version__, "cuda": torch.version.cuda, "dtype": str(plan.dtype)}


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.3e}"
