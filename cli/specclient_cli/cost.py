"""Turn the ledger into sums by provider, model, day or tag: the command ``specclient cost``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console

from specclient.costs.reports import Report
from specclient.costs.reports_read import Found, read
from specclient.costs.reports_text import (
    SAVINGS,
    UNKNOWN,
    Cells,
    figures_of,
    markdown,
    notes,
    saving_cells,
    saving_notes,
)
from specclient.costs.savings import By, Saving
from specclient_cli import cost_options, render
from specclient_cli.state import State, pass_state

FORMATS = ("table", "json", "csv", "markdown", "html")

#: Subcommands that live in modules of their own, imported when they are used.
_ELSEWHERE = {
    "top": "cost_rows",
    "tail": "cost_rows",
    "export": "cost_rows",
    "prune": "cost_rows",
    "budget": "cost_budget",
    "prices": "cost_prices",
    "update-prices": "cost_prices",
    "estimate": "cost_estimate",
}


class Costs(click.Group):
    """The group of commands about money; most are imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in _ELSEWHERE if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"specclient_cli.{_ELSEWHERE[cmd_name]}")
        return cast("click.Command", getattr(module, cmd_name.replace("-", "_")))


@click.group(name="cost", cls=Costs)
def command() -> None:
    """Sum up what calls used and cost.

    \b
    Examples:
      specclient cost report
      specclient cost top --by tag:team
      specclient cost tail -f
    """


@command.command(name="report", short_help="Sum up calls by any group.")
@cost_options.by_option(default="provider,model")
@cost_options.where_options
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How to print it. html is one page with charts, which needs no network. Default: table.",
)
@cost_options.output_option
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--csv", "as_csv", is_flag=True, help="Short for --format csv: a line a group, exact figures.")
@pass_state
def report_command(
    state: State,
    /,
    *,
    by: tuple[str, ...],
    form: str | None,
    output: Path | None,
    as_json: bool,
    as_csv: bool,
    **given: Any,
) -> None:
    """Sum up the calls in the ledger: tokens, acceptance, speed and dollars, and what speculation saved.

    Money is exact; '~' marks sums in which a price or a token count is an estimate, and a call without a
    known price is counted as unpriced, never as free. Days and times are UTC. What the target would have
    cost and taken alone is an assumption, and printed beside its figure.

    \b
    Examples:
      specclient cost report --by model --since 7d
      specclient cost report --by day,provider --json
      specclient cost report --by tag:team --tag env=prod --csv > costs.csv
      specclient cost report --since 30d --format html -o costs.html

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    form = _one_format(form, as_json=as_json, as_csv=as_csv)
    if form == "html" and output is None and render.console().is_terminal:
        raise click.UsageError("--format html is a page for a browser: add -o FILE, such as -o costs.html.")
    ledger, where = state.ledger(), cost_options.where_of(given)
    if form == "html":
        from specclient.costs.page.page import page  # noqa: PLC0415 - not needed for any other

        cost_options.write(output, page(ledger, by, where, now=datetime.now(UTC), name=ledger.location))
        return
    saved_by: By = "strategy" if "strategy" in by and "pair" not in by else "pair"
    found = read(ledger, [by], where, by=saved_by)
    summed = found.reports[0]
    if form == "csv":
        cost_options.write(output, summed.to_csv())
    elif form == "json":
        cost_options.write(output, json.dumps(_as_json(found, ledger.location)) + "\n")
    elif not found.calls:
        say_empty(ledger.location, narrowed=where.narrowed)
    elif form == "markdown":
        cost_options.write(output, markdown(summed, found.savings or (), by=saved_by))
    elif output is None:
        show_found(found, saved_by)
    else:
        _write_table(output, found, saved_by)


def _one_format(form: str | None, *, as_json: bool, as_csv: bool) -> str:
    wanted = [form, "json" if as_json else None, "csv" if as_csv else None]
    named = list(dict.fromkeys(filter(None, wanted)))
    if len(named) > 1:
        raise click.UsageError(f"--{named[-1]} and --{named[0]} exclude each other; choose one format.")
    return named[0] if named else "table"


def _write_table(output: Path, found: Found, by: By) -> None:
    with cost_options.writing(output) as file:
        show_found(found, by, Console(file=file, highlight=False, markup=False, emoji=False))


def show_found(found: Found, by: By = "pair", to: Console | None = None) -> None:
    """Print a report as a table, and what speculation saved, grouped ``by`` pair or strategy."""
    show(found.reports[0], to=to)
    if found.savings:
        render.say(to=to)
        show_savings(found.savings, by, to=to)
    elif found.savings is None and found.reports[0].total.acceptance_rate is not None:
        render.say(
            f"What speculation saved is not told of {found.calls:,} calls at once: narrow with --since, or "
            "read client.costs.savings()",
            render.DIM,
            to=to,
        )


def _as_json(found: Found, location: str) -> dict[str, Any]:
    savings = None if found.savings is None else [saving.to_dict() for saving in found.savings]
    return {**found.reports[0].to_json(), "savings": savings, "ledger": location}


def show(summed: Report, *, to: Console | None = None) -> None:
    """Print a report as a table, its total, and what its marks mean."""
    cells = Cells.of(summed)
    columns = [render.Column(name) for name in summed.by]
    columns += [render.Column(figure.title, right=True, rank=figure.rank) for figure in figures_of(summed)]
    lines = [render.Line([cost_options.shown(cell) for cell in line]) for line in cells.lines]
    lines.append(render.Line(cells.total, style="bold"))
    if cells.unpriced is not None:
        lines.append(render.Line(cells.unpriced))
    render.grid(columns, lines, to=to)
    for note in notes(summed):
        render.say(note, render.DIM, to=to)


def show_savings(savings: Sequence[Saving], by: By, *, to: Console | None = None) -> None:
    """Print what speculation saved, and under each line what its figures rest on."""
    render.say("What speculation saved, against the target alone", render.HEADING, to=to)
    ranks = {"calls": 5, "accepted": 4, "cost": 2, "cost alone": 3, "saved": 0, "time": 2, "time alone": 3}
    columns = [render.Column(by)]
    columns += [render.Column(title, right=True, rank=ranks.get(title, 1)) for title in SAVINGS]
    to = to or render.console()
    lines = [[cost_options.shown(cell) for cell in saving_cells(saving)] for saving in savings]
    render.grid(columns, [render.Line(line) for line in lines], to=to)
    for saving in savings:
        render.say(cost_options.shown(saving.group or UNKNOWN), to=to)
        for note in saving_notes(saving):
            render.say(cost_options.shown(note), render.DIM, indent=2, to=to)


def say_empty(location: str, *, narrowed: bool) -> None:
    """Say that there is nothing to sum up, and the way out."""
    if location == "off":
        render.say(
            "The ledger is off: unset SPECCLIENT_LEDGER, or `ledger` in specclient.toml, to keep calls."
        )
    elif narrowed:
        render.say(
            f"No call in {location} matches; leave out --since, --until, --provider, --model or --tag "
            "to see all."
        )
    else:
        render.say(f"No calls yet in {location}.")
        render.say('A first one: specclient complete "def fibonacci(n):" -m local/demo')
