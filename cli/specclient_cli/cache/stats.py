"""``specclient cache stats``: how many answers are kept, their size, and what they saved."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from specclient_cli.cache.opened import opened_store
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state


@click.command(name="stats")
@options.json_option
@pass_state
def command(state: State, as_json: bool) -> None:
    """Show how many answers are kept, their size, and what they saved.

    The calls that were answered from the cache, and what they saved, are those of the ledger, of all times.
    What an answer saved is its cost when it was made; answers of unknown cost count as 0.

    \b
    Examples:
      specclient cache stats
      specclient cache stats --json

    Environment: SPECCLIENT_CACHE (path or URL), SPECCLIENT_LEDGER, SPECCLIENT_CONFIG.
    """
    settings = state.settings()
    with opened_store(settings) as store:
        found = store.contents()
        name = store.name
    totals = state.ledger().rollup()
    calls = sum(each.cached_calls for each in totals)
    saved = sum(each.saved_nano for each in totals)
    limits = settings.cache.limits()
    values: dict[str, Any] = {
        "store": name,
        "enabled": settings.cache.enabled,
        "entries": found.entries,
        "bytes": found.bytes,
        "oldest": _time(found.oldest_ms),
        "newest": _time(found.newest_ms),
        "max_entries": limits.max_entries,
        "max_bytes": limits.max_bytes,
        "max_age_s": limits.max_age_s,
        "cached_calls": calls,
        "saved": f"{saved / 10**9:.9f}",
    }
    if as_json:
        click.echo(json.dumps(values))
        return
    from specclient.call.cached.answers import dollars  # noqa: PLC0415 - keeps --help quick
    from specclient.reports.text import format_dollars  # noqa: PLC0415

    rows = [
        ("store", name),
        ("used by", "all calls" if settings.cache.enabled else "calls that ask for it"),
        ("answers", f"{found.entries:,} of at most {limits.max_entries:,}"),
        ("bytes", f"{found.bytes:,} of at most {limits.max_bytes:,}"),
        ("oldest", values["oldest"] or render.UNKNOWN),
        ("newest", values["newest"] or render.UNKNOWN),
        ("calls answered", f"{calls:,}"),
        ("saved", format_dollars(dollars(saved) or dollars(0))),  # type: ignore[arg-type]
    ]
    render.print_table(
        [render.TableColumn("cache"), render.TableColumn("value")],
        [render.TableRow([title, str(value)]) for title, value in rows],
    )


def _time(made_ms: int | None) -> str | None:
    if made_ms is None:
        return None
    return datetime.fromtimestamp(made_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
