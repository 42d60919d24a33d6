"""Plots of simulated calls: their costs, latencies, routes and regret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import pyplot as plt
from plots import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specclient.routing.simulate.comparison import Comparison
    from specclient.routing.simulate.replay import ReplayedCall
    from specclient.routing.simulate.world import World

#: The palette of Okabe and Ito, which colour-blind readers can distinguish.
POLICY, ORACLE, BEST, OTHER = "#0072B2", "#000000", "#D55E00", "#BBBBBB"
ROUTES = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#666666")
SHADE = {"outage": "#D55E00", "slowdown": "#E69F00"}
_BIN_S = 600.0
#: The size of labels at the ends of lines.
_LABEL_PT = 9


def draw(world: World, comparison: Comparison, folder: Path) -> list[Path]:
    """Draw one run; return the files."""
    files = [folder / f"routing{name}.png" for name in ("", "_latency", "_shares", "_regret")]
    for file, picture in zip(files, (_cost, _latency, _shares, _regret), strict=True):
        picture(world, comparison, file)
    return files


def draw_day(world: World, comparison: Comparison, title: str, file: Path) -> None:
    """Draw a run in one figure: dollars and regret so far, and the routes of the policy and the oracle."""
    figure, panels = plt.subplots(4, 1, figsize=(8.5, 9), sharex=True)
    figure.subplots_adjust(left=0.09, right=0.8, top=0.92, bottom=0.06, hspace=0.3)
    best = comparison.best_fixed.name
    for axes, value, name in ((panels[0], "cost", "dollars"), (panels[1], "regret", "regret in dollars")):
        ends = []
        oracle = [] if value == "regret" else [("equal", "oracle", ORACLE)]
        lines = ((best, f"always {best.split('/')[0]}", BEST), *oracle, ("policy", 'model="auto"', POLICY))
        for key, label, colour in lines:
            steps, total, line = comparison.replays[key].steps, 0.0, []
            for step in steps:
                total += getattr(step, value)
                line.append(total)
            style = "--" if key == "equal" else "-"
            axes.plot(_hours(steps), line, color=colour, linewidth=2, linestyle=style)
            ends.append((total, f"{label}  ${total:.2f}", colour))
        _label(axes, ends, world.calls[-1].at / 3600)
        axes.set_title(f"{name}, summed from the start", loc="left", fontsize=10)
        axes.set_ylabel("dollars")
    _stack(world, comparison, panels[2:])
    for axes, who in zip(panels[2:], ('model="auto"', "the oracle"), strict=True):
        axes.set_title(f"share of calls by route: {who}", loc="left", fontsize=10)
    panels[3].set_xlabel("hours of the run")
    figure.suptitle(title, x=0.09, y=0.98, ha="left", fontsize=11)
    save(figure, file, tight=False)


def _cost(world: World, comparison: Comparison, file: Path) -> None:
    """Draw the cost over time of the policy, the oracle with as many violations, and all fixed routes."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    best = comparison.best_fixed.name
    ends = []
    named = [(summary.name, summary.name) for summary in comparison.fixed]
    for name, label in (*named, ("equal", "oracle"), ("policy", 'model="auto"')):
        steps = comparison.replays[name].steps
        colour = {"policy": POLICY, "equal": ORACLE, best: BEST}.get(name, OTHER)
        wide = 2.4 if name in {"policy", "equal", best} else 1.2
        total, line = 0.0, []
        for step in steps:
            total += step.cost
            line.append(total)
        axes.plot(
            _hours(steps), line, color=colour, linewidth=wide, linestyle="--" if name == "equal" else "-"
        )
        missed = next((s.violations for s in comparison.fixed if s.name == name), None)
        note = "" if missed is None else f"  {missed:.0%} missed"
        ends.append((total, label.split("/")[0] + note, colour if colour != OTHER else "#555555"))
    _label(axes, ends, world.calls[-1].at / 3600)
    axes.set_xlabel("hours of the run")
    axes.set_ylabel("dollars so far")
    axes.set_title(f"Cost of {len(world.calls):,} calls, and the share that missed their limits", loc="left")
    save(figure, file)


def _label(axes: Axes, ends: Sequence[tuple[float, str, str]], at: float) -> None:
    """Label the ends of lines; labels that would overlap are moved apart."""
    top = 1.06 * max(value for value, _, _ in ends)
    axes.set_xlim(0, at)
    axes.set_ylim(0, top)
    inches = axes.get_position().height * axes.figure.get_size_inches()[1]
    apart = top * _LABEL_PT * 1.3 / 72 / inches
    last = -apart
    for value, name, colour in sorted(ends):
        last = max(value, last + apart)
        axes.annotate(
            name, (at, last), xytext=(6, 0), textcoords="offset points", va="center",
            color=colour, fontsize=_LABEL_PT, annotation_clip=False,
        )  # fmt: skip


def _latency(world: World, comparison: Comparison, file: Path) -> None:
    """Draw the 95th percentile of each task's latency over time, its limit, and incidents as shaded areas."""
    tasks = [kind for kind in world.spec.kinds if kind.max_latency_s is not None]
    figure, panels = plt.subplots(len(tasks), 1, figsize=(7.5, 1.6 * len(tasks) + 0.8), sharex=True)
    steps = comparison.replays["policy"].steps
    for axes, kind in zip(panels, tasks, strict=True):
        for incident in world.incidents:
            axes.axvspan(
                incident.start / 3600,
                incident.end / 3600,
                color=SHADE[incident.kind],
                alpha=0.22,
                linewidth=0,
            )
        own = [step for step in steps if step.call.task == kind.task]
        hours, tails = _binned(own, lambda some: _tail([step.latency_s for step in some]))
        axes.plot(hours, tails, color=POLICY, linewidth=1.8)
        axes.axhline(kind.max_latency_s, color=BEST, linestyle="--", linewidth=1.2)
        axes.set_ylim(0, 1.6 * (kind.max_latency_s or 1))
        axes.set_ylabel("seconds")
        axes.set_title(
            f"{kind.task.replace('_', ' ')}: limit {kind.max_latency_s:g} s", loc="left", fontsize=10
        )
    panels[-1].set_xlim(0, world.calls[-1].at / 3600)
    panels[-1].set_xlabel("hours of the run")
    figure.suptitle(
        "95th percentile per ten minutes; dashed: limit;\n"
        "shaded: a host is out (red) or slow (yellow)",
        x=0.01, ha="left", fontsize=10,
    )  # fmt: skip
    save(figure, file)


def _shares(world: World, comparison: Comparison, file: Path) -> None:
    """Draw the share of each route over time: chosen by the policy above, by the oracle below."""
    figure, panels = plt.subplots(2, 1, figsize=(7.5, 5.6), sharex=True, sharey=True)
    _stack(world, comparison, panels)
    panels[1].set_xlabel("hours of the run")
    save(figure, file)


def _stack(world: World, comparison: Comparison, panels: Sequence[Axes]) -> None:
    """Draw the share of each route over time into two panels."""
    for axes, (name, title) in zip(
        panels, (("policy", 'model="auto"'), ("equal", "the oracle")), strict=True
    ):
        steps = comparison.replays[name].steps
        hours, parts = [], []
        for hour, some in _bins(steps):
            hours.append(hour)
            parts.append([100 * sum(s.served == route for s in some) / len(some) for route in world.routes])
        axes.stackplot(
            hours, list(zip(*parts, strict=True)), colors=ROUTES, linewidth=0.3, edgecolor="white",
            labels=[route.split("/")[0] for route in world.routes],
        )  # fmt: skip
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel("calls, %")
        axes.set_ylim(0, 100)
    panels[0].set_xlim(hours[0], hours[-1])
    panels[0].legend(loc="center left", bbox_to_anchor=(1.01, -0.15), frameon=False, fontsize=9, reverse=True)


def _regret(world: World, comparison: Comparison, file: Path) -> None:
    """Draw the cumulative regret of the policy, of the best fixed route and of random choices."""
    figure, axes = plt.subplots(figsize=(7.5, 3.6))
    ends = []
    best = comparison.best_fixed.name
    for name, label, colour in (
        ("random", "random", "#555555"),
        (best, f"always {best.split('/')[0]}", BEST),
        ("policy", 'model="auto"', POLICY),
    ):
        total, line = 0.0, []
        for step in comparison.replays[name].steps:
            total += step.regret
            line.append(total)
        axes.plot(_hours(comparison.replays[name].steps), line, color=colour, linewidth=2)
        ends.append((total, label, colour))
    for change in world.changes:
        axes.axvline(change.at / 3600, color=OTHER, linewidth=0.6, zorder=0)
    _label(axes, ends, world.calls[-1].at / 3600)
    axes.set_xlabel("hours of the run; thin lines: a host fails, slows down or recovers")
    axes.set_ylabel("regret so far, dollars")
    axes.set_title("Regret relative to the oracle", loc="left")
    save(figure, file)


def _hours(steps: Sequence[ReplayedCall]) -> list[float]:
    return [step.call.at / 3600 for step in steps]


def _bins(steps: Sequence[ReplayedCall]) -> list[tuple[float, list[ReplayedCall]]]:
    """Return the calls of each ten minutes, with the hour of the middle of the interval."""
    binned: dict[int, list[ReplayedCall]] = {}
    for step in steps:
        binned.setdefault(int(step.call.at / _BIN_S), []).append(step)
    return [((place + 0.5) * _BIN_S / 3600, some) for place, some in sorted(binned.items())]


def _binned(
    steps: Sequence[ReplayedCall], value: Callable[[Sequence[ReplayedCall]], float]
) -> tuple[list[float], list[float]]:
    bins = _bins(steps)
    return [hour for hour, _ in bins], [value(some) for _, some in bins]


def _tail(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
