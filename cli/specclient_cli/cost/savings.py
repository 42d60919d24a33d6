"""``specclient cost savings``: what the response cache, prompt caches and speculation each saved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import click

from specclient.ledger.figures import CallTotals
from specclient.reports.reader import ReportSet, read_reports
from specclient.reports.text import format_dollars
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report, report_options


class SavedBy(NamedTuple):
    """The savings of a cache or of speculation.

    Attributes:
        what: its name.
        calls: number of calls that it served or sped up.
        saved: dollars; negative if it cost more than it saved, None if unknown.
        basis: what the sum rests on.
    """

    what: str
    calls: int
    saved: Decimal | None
    basis: str

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON; dollars are text, which is exact."""
        return {**self._asdict(), "saved": None if self.saved is None else f"{self.saved:f}"}


@click.command(name="savings")
@report_options.by_option(default="model")
@report_options.filter_options
@options.json_option
@pass_state
def command(state: State, /, *, by: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Show what the response cache, prompt caches and speculation each saved.

    The response cache saved what its answers cost when they were made. A provider's prompt cache saved the
    difference between the prices of cached and of other tokens, less what writing to it cost more. Both are
    exact, at the prices of the day of each call; calls before the ledger kept these sums add nothing. The
    savings of speculation are estimates: see 'specclient cost report'.

    \b
    Examples:
      specclient cost savings --since 30d
      specclient cost savings --by tag:team --json

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), report_options.call_filter(given)
    found = read_reports(ledger, [by], where)
    if not found.calls and not as_json:
        report.print_no_calls(ledger.location, filtered=where.has_conditions)
        return
    sums, lines = list(_sums(found)), found.reports[0].lines
    if as_json:
        groups = [
            {
                **dict(zip(by, line.group, strict=True)),
                **{name: _text(value) for name, value in _of_group(line).items()},
            }
            for line in lines
        ]
        click.echo(json.dumps({"saved": [each.to_json() for each in sums], "by": list(by), "lines": groups}))
        return
    _show(sums, by, [line for line in lines if any(value for value in _of_group(line).values())])


def _of_group(line: CallTotals) -> dict[str, Decimal | None]:
    return {"response_cache": line.cache_saved, "prompt_cache": line.prompt_cache_saved}


def _sums(found: ReportSet) -> Iterator[SavedBy]:
    total = found.reports[0].total
    yield SavedBy(
        "response cache", total.cached_calls, total.cache_saved, "what the answers cost when they were made"
    )
    yield SavedBy(
        "prompt caches",
        total.prompt_cached_calls,
        total.prompt_cache_saved,
        "prices of cached and of other tokens, less the price of writing",
    )
    if found.savings is None:
        yield SavedBy("speculation", 0, None, f"not computed for {found.calls:,} calls at once; use --since")
        return
    known = [saving for saving in found.savings if saving.saved is not None]
    yield SavedBy(
        "speculation",
        sum(saving.cost_calls for saving in known),
        sum((saving.saved or Decimal(0) for saving in known), Decimal(0)) if known else None,
        "estimated; see specclient cost report",
    )


def _show(sums: Sequence[SavedBy], by: Sequence[str], lines: Sequence[CallTotals]) -> None:
    columns = [
        render.TableColumn("by"),
        render.TableColumn("calls", right=True),
        render.TableColumn("saved", right=True),
    ]
    rows = [
        render.TableRow([each.what, f"{each.calls:,}", _money(each.saved)], note=each.basis) for each in sums
    ]
    render.print_table(columns, rows)
    if not lines:
        return
    render.print_paragraph()
    columns = [render.TableColumn(name) for name in by]
    columns += [render.TableColumn(name, right=True) for name in ("response cache", "prompt cache")]
    rows = [
        render.TableRow(
            [
                *(report_options.one_line(value) or render.UNKNOWN for value in line.group),
                *map(_money, _of_group(line).values()),
            ]
        )
        for line in lines
    ]
    render.print_table(columns, rows)


def _money(dollars: Decimal | None) -> str:
    if dollars is None:
        return render.UNKNOWN
    if 0 < abs(dollars) < Decimal("0.0001"):  # such as a call of a small local model
        return format_dollars(dollars)
    return f"{'-' if dollars < 0 else ''}${abs(dollars):.4f}"


def _text(dollars: Decimal | None) -> str | None:
    return None if dollars is None else f"{dollars:f}"
