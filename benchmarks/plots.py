"""Plots of the benchmarks' figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

OWN, OTHER, THEORY = "#1b7837", "#9970ab", "#888888"


def speeds(tokens_per_s: Mapping[str, float], file: Path) -> None:
    """Draw tokens per second as bars, with separate colours for this engine and transformers."""
    names = sorted(tokens_per_s, key=lambda name: tokens_per_s[name])
    figure, axes = plt.subplots(figsize=(8, 0.3 * len(names) + 1.2))
    bars = axes.barh(
        names,
        [tokens_per_s[name] for name in names],
        color=[OWN if name.startswith("own") else OTHER for name in names],
    )
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_xlabel("tokens per second")
    save(figure, file)


def methods(rows: Sequence[Mapping[str, float]], file: Path) -> None:
    """Draw the tokens per target pass and the speed-up of each method."""
    shown = sorted(rows, key=lambda row: row["speed_up"])
    names = [str(row["name"]) for row in shown]
    figure, (length, speed) = plt.subplots(1, 2, figsize=(10, 0.32 * len(shown) + 1.2), sharey=True)
    bars = length.barh(names, [row["mean_accepted_length"] for row in shown], color=OTHER)
    length.bar_label(bars, fmt="%.2f", padding=3)
    length.set_xlabel("tokens per target pass")
    bars = speed.barh(names, [row["speed_up"] for row in shown], color=OWN)
    speed.bar_label(bars, fmt="%.2f", padding=3)
    speed.axvline(1.0, color="black", linewidth=0.5)
    speed.set_xlabel("speed-up over plain decoding")
    save(figure, file)


def depths(rows: Sequence[Mapping[str, float]], cost: float, file: Path) -> None:
    """Draw the speed-up over plain decoding by draft length, measured and by the closed form."""
    lengths = [row["length"] for row in rows]
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(lengths, [row["closed_form"] for row in rows], "--", color=THEORY, label="closed form")
    axes.plot(lengths, [0.85 * row["closed_form"] for row in rows], ":", color=THEORY, label="85 % of it")
    axes.plot(lengths, [row["measured"] for row in rows], "o-", color=OWN, label="measured")
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.set_xlabel("draft length K")
    axes.set_ylabel("speed-up over plain decoding")
    axes.set_title(f"draft model, c = {cost:.3f}")
    axes.legend()
    save(figure, file)


def save(figure: plt.Figure, file: Path, *, tight: bool = True) -> None:
    """Write a figure to a file, and close it.

    Args:
        tight: whether the margins are computed; False for a figure that has set its own.
    """
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    if tight:
        figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)
