"""Turn single rows of the ledger into lists: the dearest, the latest, all of them, or none any more."""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from specclient.costs.ledger import Ledger
from specclient.costs.reports import Report, Tally
from specclient.costs.reports_export import FORMATS, Format, exported, plain
from specclient.costs.reports_read import Where, matching, read
from specclient.costs.reports_text import UNKNOWN, money, seconds
from specclient.costs.row import Row
from specclient_cli import cost, cost_options, options, render
from specclient_cli.cost_options import shown
from specclient_cli.state import State, pass_state

#: Rows that `tail -f` looks at first, and again where all of them are new.
_WINDOW = 500


@click.command(short_help="Show what is dearest.")
@cost_options.by_option(default="model", more=("call", "tag"))
@cost_options.where_options
@click.option("-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="How many.")
@options.json_option
@pass_state
def top(state: State, /, *, by: tuple[str, ...], number: int, as_json: bool, **given: Any) -> None:
    """Show what is dearest: models, tags or any other group, or single calls. Of the last day by default.

    '--by tag' lists every tag as NAME=VALUE; a call that carries several counts in each of them.

    \b
    Examples:
      specclient cost top
      specclient cost top --by call -n 5 --since 1h
      specclient cost top --by tag --since 7d

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    asked = cost_options.where_of(given)
    if given["since"] is None:
        given["since"] = (given["until"] or datetime.now(UTC)) - timedelta(days=1)
    ledger, where = state.ledger(), cost_options.where_of(given)
    if by == ("call",):
        dearest = heapq.nlargest(number, _rows(ledger, where), key=lambda row: row.cost_nano or 0)
        if as_json:
            click.echo(json.dumps([plain(row) for row in dearest]))
        elif dearest:
            _show_calls(dearest)
        else:
            _say_none(ledger, asked)
        return
    summed = _by_tag(ledger, where) if by == ("tag",) else read(ledger, [by], where).reports[0]
    lines = sorted(summed.lines, key=lambda line: (-line.cost_nano, line.group))[:number]
    cut = Report(summed.by, tuple(lines), summed.total, summed.rounded)
    if as_json:
        click.echo(json.dumps(cut.to_json()))
    elif lines:
        cost.show(cut)
        if len(summed.lines) > len(lines):
            render.say(f"the total is of all {len(summed.lines):,} groups; -n shows more", render.DIM)
    elif by == ("tag",) and summed.total.calls:
        day = "" if asked.since or asked.until else " of the last day (--since 30d looks further back)"
        render.say(
            f"No call{day} that matches in {ledger.location} carries a tag; set one with "
            '`specclient complete --tag team=search`, or tags={"team": "search"} in a call.'
        )
    else:
        _say_none(ledger, asked)


def _say_none(ledger: Ledger, asked: Where) -> None:
    """Say that no call is shown: whether filters or the day that holds where none is named leave them out."""
    if asked.narrowed or not ledger.rows(limit=1):
        cost.say_empty(ledger.location, narrowed=asked.narrowed)
    else:
        render.say(
            f"No call in {ledger.location} started within the last day; --since 30d looks further back."
        )


def _rows(ledger: Ledger, where: Where) -> Iterator[Row]:
    return matching(ledger.iterate(where.since, where.until), where)


def _by_tag(ledger: Ledger, where: Where) -> Report:
    """Sum up by each tag that a call carries; the total counts each call once."""
    tally, total = Tally(()), Tally(())
    for row in _rows(ledger, where):
        total.add(row)
        for name, value in row.tags.items():
            tally.at((f"{name}={value}",)).add(row)
    return Report(("tag",), tally.report().lines, total.report().total)


def _show_calls(rows: Sequence[Row]) -> None:
    columns = [
        render.Column("started (UTC)", rank=3),
        render.Column("model"),
        render.Column("in", right=True, rank=2),
        render.Column("out", right=True, rank=2),
        render.Column("time", right=True, rank=1),
        render.Column("tags", rank=5),
        render.Column("request id", rank=4),
        render.Column("cost", right=True),
    ]
    render.grid(columns, [render.Line(_cells(row)) for row in rows])


def _cells(row: Row) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    return [
        f"{row.started_at:%Y-%m-%d %H:%M:%S}",
        shown(row.route),
        _count(row.prompt_tokens),
        _count(row.completion_tokens),
        seconds(row.latency_s),
        shown(tags),
        shown(row.request_id or UNKNOWN),
        _cost(row),
    ]


def _count(tokens: int | None) -> str:
    return UNKNOWN if tokens is None else f"{tokens:,}"


def _cost(row: Row) -> str:
    dollars, estimated = row.cost, row.cost_estimated or row.usage_estimated
    return "unknown" if dollars is None else money(dollars, estimated=estimated)


@click.command(short_help="Show the latest calls, or each as it ends.")
@cost_options.where_options
@click.option("-n", "--number", type=click.IntRange(min=0), default=10, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with every call as it ends, until Ctrl-C.")
@click.option(
    "--interval",
    type=options.Finite(above_zero=True),
    default=1.0,
    show_default=True,
    help="Seconds between two looks at the ledger.",
)
@options.json_option
@pass_state
def tail(state: State, /, *, number: int, follow: bool, interval: float, as_json: bool, **given: Any) -> None:
    """Show the latest calls, and with -f those of all programs that share the ledger, as they end.

    A call stands in the order in which it started. Times are UTC.

    \b
    Examples:
      specclient cost tail
      specclient cost tail -f --tag team=search
      specclient cost tail -f --json | jq .cost_nano

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), cost_options.where_of(given)
    if not follow or where.until is not None:
        if follow:
            raise click.UsageError("--until ends, and -f does not: leave one of them out.")
        latest = _latest(ledger, where, number)
        for row in latest:
            _say(row, as_json=as_json)
        if not latest and not as_json:
            cost.say_empty(ledger.location, narrowed=where.narrowed)
        return
    if ledger.location == "off":
        cost.say_empty(ledger.location, narrowed=False)
        return
    for row in _followed(ledger, where, number, interval):
        _say(row, as_json=as_json)


def _latest(ledger: Ledger, where: Where, number: int) -> list[Row]:
    """Return the newest rows that are meant: of ever more of the newest ones, until they are enough."""
    window = max(_WINDOW, number)
    while True:
        rows = ledger.rows(where.since, where.until, limit=window)
        found = list(matching(rows, where))
        if len(found) >= number or len(rows) < window:
            return found[len(found) - min(number, len(found)) :]
        window *= 4


def _followed(ledger: Ledger, where: Where, number: int, interval: float) -> Iterator[Row]:
    """Yield the latest rows, then every row that comes; of a burst, as far back as there are new ones.

    A row stands where its call started, so one that ends late comes among older ones: they are looked at
    again each time, back to the oldest of the window that this began with.
    """
    rows = ledger.rows(where.since, limit=_WINDOW)
    floor = rows[0].started_at if len(rows) == _WINDOW else datetime.min.replace(tzinfo=UTC)
    latest = _latest(ledger, where, number)
    seen = {row.id for row in (*rows, *latest)}
    yield from latest
    while True:
        time.sleep(interval)
        window = _WINDOW
        while True:
            rows = ledger.rows(where.since, limit=window)
            if len(rows) < window or rows[0].id in seen or rows[0].started_at < floor:
                break
            window *= 4
        fresh = [row for row in rows if row.id not in seen and row.started_at >= floor]
        yield from matching(fresh, where)
        seen.update(row.id for row in fresh)
        if len(seen) > 20 * _WINDOW and rows:
            seen, floor = {row.id for row in rows}, rows[0].started_at


def _say(row: Row, *, as_json: bool) -> None:
    """Print one call: its time, cost and seconds, where it went, what went wrong, tokens and tags."""
    if as_json:
        click.echo(json.dumps(plain(row)))
        return
    ended = "" if row.status == "ok" else f"  {row.error or row.status}"
    tags = "".join(f"  {name}={value}" for name, value in row.tags.items())
    tokens = f"{_count(row.prompt_tokens)} → {_count(row.completion_tokens)}"
    text = (
        f"{row.started_at:%H:%M:%S}  {_cost(row):>10}  {seconds(row.latency_s):>8}  {shown(row.route)}"
        f"{shown(ended)}  {tokens}{shown(tags)}"
    )
    screen = render.console()
    line = Text(text, render.BAD if row.status == "error" else "")
    if screen.is_terminal:
        line.truncate(screen.width, overflow="ellipsis")
    screen.print(line, soft_wrap=True)
    sys.stdout.flush()


@click.command(short_help="Write the calls as CSV or JSON lines.")
@cost_options.where_options
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True, help="Of the lines."
)
@cost_options.output_option
@pass_state
def export(state: State, /, *, form: Format, output: Path | None, **given: Any) -> None:
    """Write the calls in the ledger, every column of them, oldest first: a line each.

    'cost_nano' is exact, in billionths of a dollar, and 'cost' the same in dollars. What is unknown is empty
    in CSV and null in JSON. Takes the same memory whether there are ten calls or ten million.

    \b
    Examples:
      specclient cost export --since 2026-01-01 -o calls.csv
      specclient cost export --format jsonl --tag team=search | gzip > calls.gz

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), cost_options.where_of(given)
    lines = exported(_rows(ledger, where), form)
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        return
    written = 0
    with cost_options.writing(output) as file:
        for line in lines:
            file.write(line)
            written += 1
    calls = written - (form == "csv")
    click.echo(f"{calls:,} {'call' if calls == 1 else 'calls'} written to {output}", err=True)


@click.command(short_help="Remove old calls.")
@click.option(
    "--before",
    type=cost_options.Instant(),
    required=True,
    help="Remove the calls that started before then: 90d, 2026-01-31, or ISO 8601.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_state
def prune(state: State, /, *, before: datetime, yes: bool) -> None:
    """Remove old calls from the ledger, for good, their part in every report included. Asks first.

    \b
    Examples:
      specclient cost export --until 2026-01-01 -o 2025.csv
      specclient cost prune --before 2026-01-01
      specclient cost prune --before 90d --yes

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger = state.ledger()
    found = sum(sums.calls for sums in ledger.rollup(None, before))
    if not found:
        render.say(f"No call in {ledger.location} started before {before:%Y-%m-%d %H:%M} UTC.")
        return
    calls = "1 call" if found == 1 else f"{found:,} calls"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{calls} would be removed, and nobody can be asked; add --yes.")
        click.confirm(f"Remove {calls} from {ledger.location}, for good?", abort=True)
    removed = ledger.prune(before)
    render.say(f"Removed {'1 call' if removed == 1 else f'{removed:,} calls'} from {ledger.location}.")
