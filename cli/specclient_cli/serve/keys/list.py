"""``specclient serve keys list``: the keys, their limits and what they spent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.serving.keys.key import StoredKey
from specclient_cli.serve.keys.key_store import key_values, open_store


@click.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also show revoked keys.")
@options.json_option
@pass_state
def command(state: State, /, everything: bool, as_json: bool) -> None:
    """List the keys with their limits and spending.

    Each key is shown by its first characters. The time of its last use has a resolution of one minute. Days
    and months of budgets are in UTC.

    \b
    Examples:
      specclient serve keys list
      specclient serve keys list --all --json

    Environment: SPECCLIENT_LEDGER (path or database URL of the keys), SPECCLIENT_CONFIG.
    """
    settings = state.settings()
    store = open_store(settings)
    try:
        found = [key for key in store.all() if everything or key.revoked_at is None]
    finally:
        store.close()
    spent = _spent(settings, found)
    if as_json:
        click.echo(json.dumps({"keys": [key_values(key, spent.get(key.name)) for key in found]}))
    elif found:
        _show(found, spent)
    else:
        render.print_paragraph("No keys. To make one: specclient serve keys create NAME")


def _spent(settings: Settings, found: Sequence[StoredKey]) -> dict[str, int]:
    """Return the nano-dollars spent in the current budget period, by the key's name."""
    from specclient.budgets.budgets import Budgets  # noqa: PLC0415 - keeps --help quick
    from specclient.ledger.ledger import Ledger  # noqa: PLC0415
    from specclient.prices.prices import Prices  # noqa: PLC0415
    from specclient.routing.learn.estimator import Estimator  # noqa: PLC0415

    names = {key.budget: key.name for key in found if key.budget is not None}
    if not names:
        return {}
    ledger = Ledger(settings.ledger)
    try:
        standings = Budgets(names, Prices(settings), Estimator(), ledger).standings()
    finally:
        ledger.close()
    return {names[each.account.budget]: each.spent for each in standings}


def _show(found: Sequence[StoredKey], spent: dict[str, int]) -> None:
    columns = [
        render.TableColumn("name"),
        render.TableColumn("key"),
        render.TableColumn("state"),
        render.TableColumn("spent", right=True),
        render.TableColumn("of", right=True, rank=1),
        render.TableColumn("requests/min", right=True, rank=3),
        render.TableColumn("tokens/min", right=True, rank=3),
        render.TableColumn("models", rank=4),
        render.TableColumn("tags", rank=5),
        render.TableColumn("last used (UTC)", rank=2),
        render.TableColumn("expires (UTC)", rank=3),
    ]
    render.print_table(columns, [_line(key, spent.get(key.name)) for key in found])


def _line(key: StoredKey, spent: int | None) -> render.TableRow:
    from specclient.types.budget import exact_dollars  # noqa: PLC0415 - keeps --help quick

    def number(count: int | None) -> str:
        return render.UNKNOWN if count is None else f"{count:,}"

    def minute(at: datetime | None, without: str) -> str:
        return without if at is None else f"{at:%Y-%m-%d %H:%M}"

    status = key.status(datetime.now(UTC))
    of = render.UNKNOWN
    if key.budget_nano is not None:
        of = exact_dollars(key.budget_nano) + ("" if key.period == "total" else f"/{key.period}")
    cells = [
        key.name,
        f"{key.prefix}…",
        status,
        render.UNKNOWN if spent is None else exact_dollars(spent),
        of,
        number(key.requests_per_minute),
        number(key.tokens_per_minute),
        " ".join(key.models) or "all",
        " ".join(f"{name}={value}" for name, value in key.tags.items()) or render.UNKNOWN,
        minute(key.used_at, "never"),
        minute(key.expires_at, "never"),
    ]
    return render.TableRow(cells, style="" if status == "active" else render.DIM)
