"""A PNG chart of speed-ups and acceptance rates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from specclient_local.model.config import short_name

from specclient.errors import ConfigurationError

if TYPE_CHECKING:
    from specclient_local.measure.pick.selection import PickResult


def draw_chart(result: PickResult, speedups: Sequence[tuple[str, float]], path: Path) -> None:
    """Write a chart with speed-ups as bars and acceptance by draft position as lines.

    Args:
        result: the measured candidates.
        speedups: bar labels and their ratios to plain decoding.
        path: the PNG file.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    bars, lines = figure.subplots(1, 2)
    names, ratios = zip(*reversed(speedups), strict=True)
    colors = [
        "tab:grey" if name == "plain" else "tab:green" if ratio > 1 else "tab:red" for name, ratio in speedups
    ]
    bars.barh(names, ratios, color=list(reversed(colors)))
    bars.axvline(1.0, color="black", linewidth=0.8)
    bars.set_xlabel("speed-up over plain decoding")
    for candidate in result.results:
        positions = range(1, len(candidate.by_position) + 1)
        label = f"{short_name(candidate.name)} (α {candidate.alpha:.2f})"
        (line,) = lines.plot(positions, candidate.by_position, marker="o", label=label)
        lines.axhline(candidate.break_even, color=line.get_color(), linestyle=":", linewidth=1)
    lines.set(xlabel="draft position", ylabel="acceptance rate (dotted: break-even)", ylim=(0, 1.02))
    lines.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot write {path}: {error}; name a PNG file in an existing folder."
        ) from None
