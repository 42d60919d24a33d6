"""A plot of calls answered over time while a fleet changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import itertools

from matplotlib import pyplot as plt

_STEP_S: Final = 10
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
        for at, event in entry["events"]:
            axes.axvline(at, color="#555555", linewidth=0.8, linestyle=":")
            axes.annotate(event, (at, 1), xycoords=("data", "axes fraction"), fontsize=7, rotation=20)
        axes.set_xlabel("seconds")
        axes.set_title(_TITLES[name], fontsize=9, pad=22, loc="left")
        axes.set_ylim(0, 1.4 * max(counts))
        axes.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)
