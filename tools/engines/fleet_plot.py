"""Plots of calls answered, and of streams, over time while a fleet changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import itertools
from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

_STEP_S: Final = 10
#: The colour of a stream by a word of its outcome; the first that fits.
_COLORS: Final = {"Error": "#b2182b", "resumed": "#762a83", "": "#5aae61"}
_TITLES: Final = {"update": "Both replicas updated", "autoscaling": "One to three replicas, by load"}


def draw(found: dict[str, dict[str, Any]], file: Path) -> None:
    """Draw the answers per second, the events and the replicas of the experiments with a timeline."""
    names = [name for name in _TITLES if "finished" in found.get(name, {})]
    if not names:
        return
    figure, panels = plt.subplots(len(names), 1, figsize=(8, 2.6 * len(names)), squeeze=False)
    for name, axes in zip(names, panels[:, 0], strict=True):
        entry = found[name]
        end = max([*entry["finished"], *(at for at, _ in entry["events"])])
        edges = [_STEP_S * index for index in range(int(end // _STEP_S) + 2)]
        counts = [
            sum(first <= at < last for at in entry["finished"]) / _STEP_S
            for first, last in itertools.pairwise(edges)
        ]
        axes.stairs(counts, edges, fill=True, color="#a6dba0", label="calls answered per second")
        if entry["replicas"]:
            axes.step(*zip(*entry["replicas"], strict=True), where="post", color="#762a83", label="replicas")
        _mark(axes, entry["events"], end)
        axes.set_xlabel("seconds")
        axes.set_ylabel("calls per second, replicas" if entry["replicas"] else "calls per second", fontsize=8)
        axes.set_title(_TITLES[name], fontsize=9, pad=36, loc="left")
        axes.set_ylim(0, 1.5 * max(counts))
        axes.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _mark(axes: Axes, events: Sequence[tuple[float, str]], end: float) -> None:
    """Mark events above the axes; a label is raised over those before it that it would touch."""
    taken = [float("-inf")] * 3  # the end of the last label in each row, from the lowest one
    for at, event in events:
        row = next((row for row, last in enumerate(taken) if last < at), len(taken) - 1)
        taken[row] = at + 0.012 * len(event) * end
        axes.axvline(at, color="#555555", linewidth=0.8, linestyle=":")
        axes.annotate(
            event, (at, 1), xycoords=("data", "axes fraction"), xytext=(0, 3 + 10 * row),
            textcoords="offset points", fontsize=7,
        )  # fmt: skip


def draw_streams(found: dict[str, dict[str, Any]], file: Path) -> None:
    """Draw the pieces of the streams during which a replica was killed, by time."""
    streams: dict[str, Any] = found.get("killed_replica", {}).get("streams", {})
    if not streams:
        return
    figure, panels = plt.subplots(1, len(streams), figsize=(8, 3.2), sharey=True, squeeze=False)
    for (name, entry), axes in zip(streams.items(), panels[0], strict=True):
        for outcome, times in zip(entry["outcomes"], entry["times"], strict=True):
            color = next(color for mark, color in _COLORS.items() if mark in outcome)
            axes.plot(times, range(1, len(times) + 1), color=color, linewidth=0.9)
        axes.axvline(entry["killed"], color="#555555", linewidth=0.8, linestyle=":")
        _mark(axes, [(entry["killed"], "a replica is killed")], 1.0)
        title = name if name.endswith("failover") else f"{name} failover"
        axes.set_title(f"{len(entry['outcomes'])} streams {title}", fontsize=9, pad=16, loc="left")
        axes.set_xlabel("seconds")
    panels[0][0].set_ylabel("pieces received")
    figure.legend(
        [Line2D([], [], color=color) for color in _COLORS.values()],
        ["ended by an error", "continued on the other replica", "not disturbed by the kill"],
        fontsize=7, loc="lower center", ncols=3,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(file, dpi=110)
    plt.close(figure)
