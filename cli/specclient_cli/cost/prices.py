"""``specclient cost prices``: current prices and their source."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import NotFoundError, OpenAIError
from specclient.providers import Endpoint
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.catalogue_format import catalogue_values, describe_catalogue

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.prices.rates import Quote

#: Rates: field, title, and rank; columns of the highest rank are omitted first on a narrow terminal.
_COLUMNS = (
    ("input", "input", 0),
    ("cached_input", "cached", 3),
    ("cache_write", "written", 4),
    ("cache_write_1h", "written 1 h", 5),
    ("output", "output", 0),
    ("reasoning", "reasoning", 6),
    ("rejected_prediction", "rejected", 6),
)


@dataclass(frozen=True, slots=True)
class _PricedRoute:
    """A route and its price; None if there is no price."""

    route: str
    quote: Quote | None


@click.command(name="prices")
@click.argument("model", type=parameter_types.ModelName(), required=False)
@options.json_option
@pass_state
def command(state: State, model: str | None, as_json: bool) -> None:
    """Show current prices and their source.

    MODEL is PROVIDER/MODEL; the default is all models in the configuration. Prices are US dollars per million
    tokens; if they rise with the length of the prompt, they are those of short prompts. A kind of token
    without its own price costs what its parent kind costs. For one MODEL, the prices of tools that the
    provider runs are shown, too. '~' marks assumed prices. A cost reported by the
    provider overrides these prices.

    \b
    Examples:
      specclient cost prices
      specclient cost prices anthropic/claude-sonnet-4-5
      specclient cost prices openai/gpt-4.1 --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_PRICES (file of the fetched catalogue, or 'off').
    """
    from specclient.prices.catalogue import saved_catalogue  # noqa: PLC0415 - slow to import

    client = state.async_client()
    found = [_priced(client, model)] if model else _configured(client)
    copy = saved_catalogue(os.environ)
    if as_json:
        values = {"prices": [_values(each) for each in found], "catalogue": catalogue_values(copy)}
        click.echo(json.dumps(values))
        return
    _show(found, tools=model is not None)
    render.print_paragraph(describe_catalogue(copy, datetime.now(UTC)), render.DIM)


def _configured(client: AsyncOpenAI) -> list[_PricedRoute]:
    """Return the models in the configuration, without those of engines that are not installed."""
    settings = client.settings
    own = [route for route in settings.prices if not route.endswith("*")]
    listed = [f"{name}/{model}" for name, table in settings.providers.items() for model in table.models]
    found = []
    for route in dict.fromkeys([settings.default_model, *settings.candidates, *own, *listed]):
        try:
            found.append(_priced(client, route))
        except NotFoundError:
            found.append(_PricedRoute(route, None))
        except OpenAIError:  # an engine that is not installed
            continue
    return found


def _priced(client: AsyncOpenAI, model: str) -> _PricedRoute:
    from specclient.prices.prices import Prices  # noqa: PLC0415 - slow to import

    provider, name = client.pipeline.destinations.split(model)
    place = client.pipeline.destinations.get(provider)
    listed = place.price_provider if isinstance(place, Endpoint) else None
    return _PricedRoute(
        f"{provider}/{name}", Prices(client.settings).quote(provider, name, price_provider=listed)
    )


def _values(priced: _PricedRoute) -> dict[str, Any]:
    quote = priced.quote
    if quote is None:
        nothing: dict[str, Any] = {"per_million": {}, "per_call": None, "per_hour": {}, "units": {}}
        return {"model": priced.route, **nothing, "source": None, "estimated": False}
    rates = {name: getattr(quote.rates, name) for name, _, _ in _COLUMNS}
    return {
        "model": priced.route,
        "per_million": {name: f"{rate:f}" for name, rate in rates.items() if rate is not None},
        "per_call": None if quote.rates.per_call is None else f"{quote.rates.per_call:f}",
        "per_hour": {kind: f"{rate:f}" for kind, rate in quote.rates.per_hour.items()},
        "units": {
            kind: {"dollars": f"{rate.dollars:f}", "per": rate.per}
            for kind, rate in quote.rates.units.items()
        },
        "source": quote.source,
        "estimated": quote.estimated,
    }


def _show(found: Sequence[_PricedRoute], *, tools: bool) -> None:
    shown = [
        (name, title, rank)
        for name, title, rank in _COLUMNS
        if rank == 0 or any(each.quote and getattr(each.quote.rates, name) is not None for each in found)
    ]
    columns = [
        render.TableColumn("model"),
        *(render.TableColumn(title, right=True, rank=rank) for _, title, rank in shown),
    ]
    render.print_table(columns, [_line(each, [name for name, _, _ in shown], tools=tools) for each in found])


def _line(priced: _PricedRoute, names: Sequence[str], *, tools: bool) -> render.TableRow:
    quote = priced.quote
    if quote is None:
        note = f'no price; set [prices."{priced.route}"] in specclient.toml'
        return render.TableRow([priced.route, *[render.UNKNOWN] * len(names)], note=note)
    mark = "~" if quote.estimated else ""
    rates = [getattr(quote.rates, name) for name in names]
    cells = [render.UNKNOWN if rate is None else f"{mark}{_dollars(rate)}" for rate in rates]
    notes = [f"{mark}{_dollars(rate)} per hour ({kind})" for kind, rate in quote.rates.per_hour.items()]
    if quote.rates.per_call is not None:
        notes.append(f"{_dollars(quote.rates.per_call)} per call")
    for kind, rate in quote.rates.units.items():
        if rate.source and not tools:  # the same for all models of the vendor
            continue
        number = "" if rate.per == 1 else f"{rate.per:,} × "
        notes.append(
            f"{'~' if rate.assumed else mark}{_dollars(rate.dollars)} per {number}{kind.replace('_', ' ')}"
        )
    return render.TableRow([priced.route, *cells], note="; ".join([*notes, quote.source]))


def _dollars(rate: Decimal) -> str:
    return f"${rate.normalize():f}"
