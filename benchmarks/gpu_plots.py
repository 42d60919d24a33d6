"""Plots of the figures of ``gpu.py``: speed-ups beside theory, batches, and the cost of verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from plots import OWN, THEORY, save

Row = Mapping[str, Any]


def draw(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all figures that were measured; return the files."""
    drawn: list[Path] = []
    grid = figures.get("grid", {}).get("rows", [])
    for wanted in sorted({row["wanted"] for row in grid}):
        file = folder / f"gpu_acceptance_{round(100 * wanted)}.png"
        _speed_ups([row for row in grid if row["wanted"] == wanted], file)
        drawn.append(file)
    free = figures.get("free", {}).get("rows", [])
    if free:
        drawn.append(folder / "gpu_free_draft.png")
        _overhead(free, drawn[-1])
    for stage, plot in (("batches", _batches), ("eagle", _eagle)):
        rows = figures.get(stage, {}).get("rows", [])
        if rows:
            drawn.append(folder / f"gpu_{stage}.png")
            plot(rows, drawn[-1])
    return drawn


def _batches(rows: Sequence[Row], file: Path) -> None:
    """Draw plain tokens per second by batch size."""
    figure, axes = plt.subplots(figsize=(5, 3.4))
    axes.plot([row["batch"] for row in rows], [row["tokens_per_s"] for row in rows], "o-", color=OWN)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("concurrent requests")
    axes.set_ylabel("tokens per second, plain")
    save(figure, file)


def _eagle(rows: Sequence[Row], file: Path) -> None:
    """Draw the speed-up of an EAGLE-3 head at one acceptance by draft length, with a line per batch size."""
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for batch, line in zip(sorted({row["batch"] for row in rows}), ("o-", "s--", "^:"), strict=False):
        own = [row for row in rows if row["batch"] == batch]
        speed_ups = [row["speed_up_at_0.75"] for row in own]
        axes.plot([row["depth"] for row in own], speed_ups, line, color=OWN, label=f"{batch} concurrent")
    axes.axhline(2.2, linestyle=":", color=THEORY, label="target")
    axes.set_xlabel("draft length K")
    axes.set_ylabel("speed-up at acceptance 0.75")
    axes.legend(fontsize=8)
    save(figure, file)


def _speed_ups(rows: Sequence[Row], file: Path) -> None:
    """Draw the speed-up over plain decoding by draft length, with one panel per batch size."""
    batches = sorted({row["batch"] for row in rows})
    figure, panels = plt.subplots(
        1, len(batches), figsize=(3.2 * len(batches), 3.4), sharey=True, squeeze=False
    )
    for axes, batch in zip(panels[0], batches, strict=True):
        own = [row for row in rows if row["batch"] == batch]
        depths = [row["depth"] for row in own]
        axes.plot(depths, [row["closed_form"] for row in own], "--", color=THEORY, label="closed form")
        axes.plot(depths, [row["speed_up"] for row in own], "o-", color=OWN, label="measured")
        axes.axhline(1.0, color="black", linewidth=0.5)
        axes.set_title(f"{batch} concurrent, c = {own[0]['cost']:.3f}", fontsize=9)
        axes.set_xlabel("draft length K")
    panels[0][0].set_ylabel("speed-up over plain decoding")
    panels[0][0].legend(fontsize=8)
    save(figure, file)


def _overhead(rows: Sequence[Row], file: Path) -> None:
    """Draw the additional time of rounds with known draft tokens over a plain step."""
    figure, axes = plt.subplots(figsize=(5, 3.4))
    axes.plot([row["depth"] for row in rows], [100 * row["overhead"] for row in rows], "o-", color=OWN)
    axes.axhline(10.0, linestyle=":", color=THEORY, label="10 %")
    axes.set_xlabel("known draft tokens per round")
    axes.set_ylabel("additional time over a plain step, %")
    axes.legend(fontsize=8)
    save(figure, file)
