"""Turn candidates and their speed-ups into a chart in a PNG file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from specclient.errors import ConfigurationError
from specclient_cli.local.engine_options import short_name
from specclient_cli.local.pick.command import speedup_bars

if TYPE_CHECKING:
    from specclient_local.measure.pick.selection import PickResult


def draw_chart(found: PickResult, path: Path) -> None:
    """Draw speed-ups as bars beside acceptance at each place as lines.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    speed, kept = figure.subplots(1, 2)
    names, ratios = zip(*reversed(speedup_bars(found)), strict=True)
    colours = [
        "tab:grey" if name == "plain" else "tab:green" if r > 1 else "tab:red"
        for name, r in speedup_bars(found)
    ]
    speed.barh(names, ratios, color=list(reversed(colours)))
    speed.axvline(1.0, color="black", linewidth=0.8)
    speed.set_xlabel("times as fast as plain decoding")
    for one in found.fared:
        places = range(1, len(one.by_position) + 1)
        (line,) = kept.plot(
            places, one.by_position, marker="o", label=f"{short_name(one.name)} (α {one.alpha:.2f})"
        )
        kept.axhline(one.break_even, color=line.get_color(), linestyle=":", linewidth=1)
    kept.set(
        xlabel="position of the guess", ylabel="kept of those tried (dotted: break-even)", ylim=(0, 1.02)
    )
    kept.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot write {path}: {error}; name a PNG file in a folder that is there."
        ) from None
