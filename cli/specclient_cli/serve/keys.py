"""Turn names and limits into keys of a server, a list of them, or their end: ``specclient serve keys``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import ConfigurationError, LedgerError
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.report_options import PastTime

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.serving.keys.key import StoredKey
    from specclient.serving.keys.store import KeyStore
    from specclient.types.budget import BudgetPeriod

#: Packages of the extra ``server``; a distribution installed without it still has these commands.
NEEDED = ("httptools", "prometheus_client", "starlette", "uvicorn")

_BUDGET = re.compile(r"\$?(?P<usd>[0-9.]+)(/(?P<period>day|month|total))?")


class SpendingLimit(options.ParameterType):
    """Dollars, and the time for which they are."""

    name = "usd[/day|/month]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = _BUDGET.fullmatch(str(value).strip())
        if found is None or found["usd"].count(".") > 1 or not Decimal(f"0{found['usd']}0"):
            self.fail(f"{value!r} is no sum; write 20, 5/day or 100/month, in dollars.", param, ctx)
        return Decimal(f"0{found['usd']}"), found["period"] or "total"


class FutureTime(PastTime):
    """A time, or a span from now on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        now = datetime.now(UTC)
        instant = super().convert(value, param, ctx)
        is_span = not isinstance(value, datetime) and str(value).strip()[-1:].lower() in "mhdw"
        return now + (now - instant) if is_span else instant


def check_installed() -> None:
    """Raise ConfigurationError where the server is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the server is not installed ({', '.join(missing)} missing): pip install 'specclient[server]'"
        )


@click.group(name="keys")
def keys() -> None:
    """Make, list and revoke the keys of a server.

    They are kept in the ledger's database, as hashes: a key is shown once, when it is made. Servers that use
    the same ledger know of a new key, and refuse a revoked one, within seconds. Once there is one, every
    request needs a key.

    \b
    Examples:
      specclient serve keys create alice
      specclient serve keys list
      specclient serve keys revoke alice
    """


@keys.command()
@click.argument("name")
@click.option(
    "--budget",
    type=SpendingLimit(),
    help="Dollars that its calls may cost, in all, or by the day or month of UTC: 20, 5/day, 100/month. "
    "Models without a price are then refused.",
)
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Requests in any 60 seconds.")
@click.option(
    "--tokens-per-minute",
    type=click.IntRange(min=1),
    help="Tokens, of prompts and answers, in any 60 seconds.",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="PATTERN",
    help="Only models like this, PROVIDER/MODEL with '*' for any letters; may be repeated. 'auto' is a name, "
    "too, and chooses among all.",
)
@options.tag_option("Label of its calls, beside key=NAME; may be repeated.")
@click.option("--expires", type=FutureTime(), help="When it ends: 90d, 24h, 2030-01-31, or ISO 8601.")
@options.json_option
@pass_state
def create(state: State, /, name: str, **given: Any) -> None:
    """Make a key called NAME and print it, this once.

    Its calls are labelled key=NAME in the ledger: `specclient cost report --by tag:key` sums them up. What a
    call may cost at most is held from the budget before it is sent.

    \b
    Examples:
      specclient serve keys create alice
      specclient serve keys create ci --budget 5/day --requests-per-minute 60
      specclient serve keys create bob -m "openai/*" --tag team=web --expires 90d

    Environment: SPECCLIENT_LEDGER (path or database URL that keeps the keys), SPECCLIENT_CONFIG.
    """
    store = _store(state.settings())
    from specclient.serving.keys.key import new_key, new_token  # noqa: PLC0415 - an extra

    token = new_token()
    budget: tuple[Decimal | None, BudgetPeriod] = given["budget"] or (None, "total")
    key = new_key(
        name,
        token,
        datetime.now(UTC),
        expires_at=given["expires"],
        usd=budget[0],
        period=budget[1],
        requests_per_minute=given["requests_per_minute"],
        tokens_per_minute=given["tokens_per_minute"],
        models=given["models"],
        tags=dict(given["tags"]),
    )
    try:
        store.add(key)
    finally:
        store.close()
    if given["as_json"]:
        click.echo(json.dumps({"key": token, **_values(key, None)}))
        return
    click.echo(token)
    render.print_paragraph(
        f"The key of {name!r} is shown this once: what is kept is its hash.",
        render.DIM,
        to=render.console(stderr=True),
    )


@keys.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Show revoked keys, too.")
@options.json_option
@pass_state
def list_(state: State, /, everything: bool, as_json: bool) -> None:
    """List the keys: how each begins, its limits, when it was last used and what it has spent of its budget.

    The last use is known to the minute. Days and months of budgets are of UTC.

    \b
    Examples:
      specclient serve keys list
      specclient serve keys list --all --json

    Environment: SPECCLIENT_LEDGER (path or database URL that keeps the keys), SPECCLIENT_CONFIG.
    """
    settings = state.settings()
    store = _store(settings)
    try:
        found = [key for key in store.all() if everything or key.revoked_at is None]
    finally:
        store.close()
    spent = _spent(settings, found)
    if as_json:
        click.echo(json.dumps({"keys": [_values(key, spent.get(key.name)) for key in found]}))
    elif found:
        _show(found, spent)
    else:
        render.print_paragraph("No keys; `specclient serve keys create NAME` makes one.")


@keys.command()
@click.argument("key")
@pass_state
def revoke(state: State, /, key: str) -> None:
    """End a key for good; KEY is its name, or how it begins.

    Servers that run refuse it within seconds; requests under way go on to their end.

    \b
    Examples:
      specclient serve keys revoke alice
      specclient serve keys revoke sk-sc-Ab3dE9

    Environment: SPECCLIENT_LEDGER (path or database URL that keeps the keys), SPECCLIENT_CONFIG.
    """
    store = _store(state.settings())
    try:
        ended = store.revoke(key, datetime.now(UTC))
    finally:
        store.close()
    click.echo(f"revoked {ended.name} ({ended.prefix}…)")


def _store(settings: Settings) -> KeyStore:
    """Return where the keys are.

    Raises:
        LedgerError: nowhere, as the ledger is off.
    """
    check_installed()
    from specclient.serving.keys.store import KeyStore  # noqa: PLC0415 - an extra

    store = KeyStore.of(settings.ledger)
    if store is None:
        raise LedgerError(
            "the ledger is off, and keys are kept in it; set SPECCLIENT_LEDGER to a file or a database URL"
        )
    return store


def _spent(settings: Settings, found: Sequence[StoredKey]) -> dict[str, int]:
    """Return the nano-dollars that keys have spent of their running budgets, by name."""
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


def _values(key: StoredKey, spent: int | None) -> dict[str, Any]:
    def dollars(nano: int | None) -> str | None:
        return None if nano is None else f"{Decimal(nano).scaleb(-9):f}"

    times = {name: getattr(key, name) for name in ("created_at", "expires_at", "revoked_at", "used_at")}
    return {
        "name": key.name,
        "prefix": key.prefix,
        "status": key.status(datetime.now(UTC)),
        "budget_usd": dollars(key.budget_nano),
        "spent_usd": dollars(spent),
        "period": None if key.budget_nano is None else key.period,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "models": list(key.models),
        "tags": dict(key.tags),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


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
        render.TableColumn("labels", rank=5),
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
