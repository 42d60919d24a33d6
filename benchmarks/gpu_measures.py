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
    """What is measured, and how long.

    Attributes:
        lower: layers of the draft.
        prompt, context: tokens, and positions a slot has.
        rounds: timed ones of a figure, after ``warm`` that are not.
        copied: bytes of each side of the copies that measure the memory.
        sampled: requests of a calibration; ``steps`` of bisection.
        new: tokens of an answer of transformers.
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


TRIED = Plan(
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
    """Figures by stage, written as they come.

    Attributes:
        ends: when the time is up, in seconds of ``clock``.
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
        return self.clock() >= self.ends

    def begin(self, stage: str) -> bool:
        """Empty a stage; return False, and say so in it, where there is no time for it."""
        self.figures[stage] = {"not_run": "no time was left"} if self.time_is_up else {"rows": []}
        self.write()
        return not self.time_is_up

    def add(self, stage: str, row: Row) -> None:
        """Note and print a figure."""
        self.figures[stage]["rows"].append(row)
        self.write()
        print(
            f"{stage:<10}" + "  ".join(f"{name} {_shown(value)}" for name, value in row.items()), flush=True
        )

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "gpu.json").write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")


def theory(alpha: float, depth: int, cost: float) -> float:
    """Return the closed form of the speed-up (Leviathan et al., arXiv 2211.17192, Theorem 3.8)."""
    tokens = depth + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (depth + 1)) / (1.0 - alpha)
    return tokens / (depth * cost + 1.0)


def needed(config: DecoderConfig, plan: Plan) -> int:
    """Return about how many bytes the stages take at their most.

    Weights; a second set of the upper layers' output projections, as drawn; keys and values of target and
    draft; and of the largest round's logits a copy in the model's type and six in float64.
    """
    c, each = config, torch.empty(0, dtype=plan.dtype).element_size()
    weights = (c.parameters + c.layers * c.hidden_size * (c.heads * c.head_dim + c.intermediate_size)) * each
    position = 2 * (c.layers + plan.lower) * c.kv_heads * c.head_dim * each
    rows = max(plan.batches) * (max(plan.depths) + 1)
    return weights + max(plan.batches) * plan.context * position + rows * c.vocab_size * (each + 6 * 8)


def bandwidth(plan: Plan, repeats: int = 20) -> float:
    """Return the most bytes a second that a copy (read, write) or a triad (two read, one written) moves."""
    count = plan.copied // torch.empty(0, dtype=plan.dtype).element_size()
    a, b, c = (torch.ones(count, dtype=plan.dtype, device=plan.device) for _ in range(3))
    return max(
        2 * plan.copied / timed(lambda: a.copy_(b), repeats, plan),
        3 * plan.copied / timed(lambda: torch.add(b, c, alpha=0.5, out=a), repeats, plan),
    )


def timed(run: Callable[[], object], count: int, plan: Plan) -> float:
    """Return the seconds of a run, many of which are queued and waited for once; two before warm up."""
    for _ in range(2):
        run()
    wait(plan)
    begun = time.perf_counter()
    for _ in range(count):
        run()
    wait(plan)
    return (time.perf_counter() - begun) / count


def wait(plan: Plan) -> None:
    """Wait for all that the device has to do."""
    if plan.device != "cpu":
        torch.cuda.synchronize()


def machine(plan: Plan) -> Row:
    named = torch.cuda.get_device_name(plan.device) if plan.device != "cpu" else "cpu"
    return {"device": named, "torch": torch.__version__, "cuda": torch.version.cuda, "dtype": str(plan.dtype)}


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.3e}"
