"""``specclient serve keys create``: make a key."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.report_options import PastTime

if TYPE_CHECKING:
    from specclient.types.budget import BudgetPeriod
from specclient_cli.serve.keys.key_store import key_values, open_store

_BUDGET = re.compile(r"\$?(?P<usd>[0-9.]+)(/(?P<period>day|month|total))?")


class SpendingLimit(parameter_types.ParameterType):
    """Dollars, and the period that they are for."""

    name = "usd[/day|/month]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = _BUDGET.fullmatch(str(value).strip())
        if found is None or found["usd"].count(".") > 1 or not Decimal(f"0{found['usd']}0"):
            self.fail(f"{value!r} is not an amount; write 20, 5/day or 100/month, in dollars.", param, ctx)
        return Decimal(f"0{found['usd']}"), found["period"] or "total"


class FutureTime(PastTime):
    """A point in time, or a duration from now."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        now = datetime.now(UTC)
        instant = super().convert(value, param, ctx)
        is_span = not isinstance(value, datetime) and str(value).strip()[-1:].lower() in "mhdw"
        return now + (now - instant) if is_span else instant


@click.command(name="create")
@click.argument("name")
@click.option(
    "--budget",
    type=SpendingLimit(),
    help="Maximum dollars of its calls, in total or per day or month (UTC): 20, 5/day, 100/month. Models "
    "without a price are then refused.",
)
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Maximum requests in any 60 seconds.")
@click.option(
    "--tokens-per-minute",
    type=click.IntRange(min=1),
    help="Maximum tokens of prompts and answers in any 60 seconds.",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="PATTERN",
    help="Allow only models that match PROVIDER/MODEL, with '*' for any characters; may be repeated. 'auto' "
    "is a name too, and chooses among all models.",
)
@options.tag_option("Tag of its calls, in addition to key=NAME; may be repeated.")
@click.option(
    "--alias",
    "aliases",
    type=parameter_types.AliasPair(),
    multiple=True,
    metavar="NAME=MODEL",
    help="Serve requests of this key for NAME, or for names that match a pattern, by MODEL; may be repeated. "
    "Precedes the aliases of the configuration.",
)
@click.option("--expires", type=FutureTime(), help="Time of expiry: 90d, 24h, 2030-01-31, or ISO 8601.")
@options.json_option
@pass_state
def command(state: State, /, name: str, **given: Any) -> None:
    """Make a key and print it once.

    The ledger tags its calls with key=NAME; `specclient cost report --by tag:key` reports them. Before a call
    is sent, its maximum cost is reserved from the budget. A key that cannot be printed is revoked.

    \b
    Examples:
      specclient serve keys create alice
      specclient serve keys create ci --budget 5/day --requests-per-minute 60
      specclient serve keys create cheap --alias "gpt-4*=openai/gpt-4o-mini"
      specclient serve keys create bob -m "openai/*" --tag team=web --expires 90d

    Environment: SPECCLIENT_LEDGER (path or database URL of the keys), SPECCLIENT_CONFIG.
    """
    store = open_store(state.settings())
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
        aliases=dict(given["aliases"]),
    )
    if key.model_aliases is not None:
        state.async_client().pipeline.destinations.check_targets(key.model_aliases)
    shown = json.dumps({"key": token, **key_values(key, None)}) if given["as_json"] else token
    try:
        store.add(key)
        try:
            click.echo(shown)
        except OSError:  # a full disk, or a closed pipe: nobody has the key
            store.revoke(token, datetime.now(UTC))
            raise
    finally:
        store.close()
    if given["as_json"]:
        return
    render.print_paragraph(
        f"The key of {name!r} is shown only now; only its hash is stored.",
        render.DIM,
        to=render.console(stderr=True),
    )
