"""The result of a measurement as JSON, a table and text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from specclient_local.model.config import short_name

from specclient_cli.common import render
from specclient_cli.local.engine_options import format_number

if TYPE_CHECKING:
    from specclient_local.measure.pick.selection import CandidateResult, PickResult, PickSettings

#: Characters of the longest bar.
_BAR = 24


def result_values(result: PickResult, target: str, settings: PickSettings) -> dict[str, Any]:
    """Return the result as ``--json`` prints it."""
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    best = result.best
    return {
        "target": target,
        "prompts": len(settings.prompts),
        "new": settings.new,
        "candidates": [{**asdict(one), "refused": rejection_reason(one)} for one in result.results],
        "recommended": None
        if best is None
        else {
            "candidate": best.name,
            "method": best.method,
            "depth": best.depth,
            "tree": None if result.widths is None else list(result.widths),
            "speed_up": result.speed_up,
        },
    }


def print_result(result: PickResult, target: str, settings: PickSettings) -> None:
    """Print the result as a table, a bar chart and a recommendation."""
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    render.print_paragraph(
        f"{short_name(target)} · {len(settings.prompts)} prompts, {settings.new} new tokens each",
        render.HEADING,
    )
    render.print_table(_COLUMNS, [_line(one, result) for one in result.results])
    click.echo()
    _bars(result)
    click.echo()
    for one in result.results:
        reason = rejection_reason(one)
        if reason is not None:
            render.print_paragraph(f"rejected: {short_name(one.name)}: {reason}", render.BAD)
    render.print_paragraph(_verdict(result), render.GOOD if result.best else render.BAD)


_COLUMNS = (
    render.TableColumn("candidate"),
    render.TableColumn("method", rank=2),
    render.TableColumn("α", right=True),
    render.TableColumn("break-even", right=True),
    render.TableColumn("by position", rank=4),
    render.TableColumn("by task", rank=5),
    render.TableColumn("c", right=True, rank=1),
    render.TableColumn("memory", right=True, rank=3),
    render.TableColumn("K", right=True),
    render.TableColumn("expected", right=True),
    render.TableColumn("closed form", right=True, rank=3),
    render.TableColumn("measured", right=True),
)


def _line(one: CandidateResult, result: PickResult) -> render.TableRow:
    measured = max(one.measured.values(), default=None)
    return render.TableRow(
        [
            short_name(one.name),
            one.method,
            format_number(one.alpha),
            format_number(one.break_even),
            " ".join(f"{share:.2f}" for share in one.by_position),
            " ".join(f"{task} {alpha:.2f}" for task, alpha in one.by_task.items()),
            format_number(one.cost, ".3f"),
            f"{one.memory / 1e6:.1f} MB",
            str(one.depth),
            f"{one.expected:.2f}×",
            f"{one.closed_form:.2f}×",
            render.UNKNOWN if measured is None else f"{measured:.2f}×",
        ],
        style=render.GOOD if one is result.best else "" if one.worth else render.DIM,
    )


def speedup_bars(result: PickResult) -> list[tuple[str, float]]:
    """Return the labels and speed-ups of a bar chart: measured ones, else expected ones."""
    shown = [("plain", 1.0)]
    for one in result.results:
        name = short_name(one.name)
        timed = [(f"{name} {way}", ratio) for way, ratio in one.measured.items()]
        shown += timed or [(f"{name} expected", one.expected)]
    return shown


def _bars(result: PickResult) -> None:
    shown = speedup_bars(result)
    longest = max(ratio for _, ratio in shown)
    lines = [
        render.TableRow([name, "█" * max(1, round(_BAR * ratio / longest)), f"{ratio:.2f}×"])
        for name, ratio in shown
    ]
    render.print_table(
        (render.TableColumn(""), render.TableColumn("speed-up"), render.TableColumn("", right=True)), lines
    )


def _verdict(result: PickResult) -> str:
    best = result.best
    if best is None:
        return "use plain decoding: no candidate is faster on this machine"
    if result.widths is None:
        how = f"depth and tree chosen in each round (best chain: {best.depth})"
    else:
        tree = ",".join(map(str, result.widths))
        how = f"depth {best.depth}, " + ("a chain" if max(result.widths) == 1 else f"tree widths {tree}")
    return (
        f"use {short_name(best.name)} ({best.method}), {how}: measured {result.speed_up:.2f}× plain decoding"
    )
