"""``specclient models show``: prices and capabilities of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import NotFoundError
from specclient.providers import PRESETS, Endpoint, probe_cache
from specclient.providers.capability_table import COLUMNS, words
from specclient.types.capabilities import Capabilities
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.types.backend import BackendModel
_PER_MILLION = 10**6
_SAMPLE = 1000  # tokens; few, because some prices rise with the length of a prompt


@click.command(name="show")
@click.argument("model", type=parameter_types.ModelName())
@options.json_option
@pass_state
def command(state: State, model: str, as_json: bool) -> None:
    """Show the prices and capabilities of a model.

    MODEL is PROVIDER/MODEL. Nothing is sent. Prices are current, in dollars per million tokens. The
    capabilities concern speculation, as in `specclient models`. Results of `specclient models probe` are
    listed with their date; they complete capabilities that are otherwise unknown.

    \b
    Examples:
      specclient models show openai/gpt-4.1
      specclient models show mine/llama --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_PROBES.
    """
    client = state.async_client()
    places = client.pipeline.destinations
    provider, name = places.split(model)
    place = places.of_model(provider, name)
    if not isinstance(place, Endpoint):
        values = _engine_values(provider, name, place.models())
        if as_json:
            click.echo(json.dumps(values))
        else:
            shown = {key: value for key, value in values.items() if key != "dimensions" or value is not None}
            _lines([(key, render.UNKNOWN if value is None else str(value)) for key, value in shown.items()])
        return
    known = place.capabilities_of(name)
    found = probe_cache.read_probe(os.environ, place.base_url, name)
    prices = _prices(client, place, name)
    if as_json:
        values = {
            "model": f"{provider}/{name}",
            "base_url": _address(place),
            "dialect": place.dialect,
            "prices": prices,
            "capabilities": capability_values(known),
            "probe": None if found is None else {**asdict(found), "at": found.at.isoformat()},
        }
        click.echo(json.dumps(values, default=str))
        return
    texts = words(known)
    row = PRESETS.get(provider)
    _lines(
        [
            ("model", f"{provider}/{name}"),
            ("base URL", _address(place)),
            ("dialect", place.dialect),
            *((f"price of {kind}", _dollars(rate)) for kind, rate in prices.items()),
            *((title.lower(), texts[column]) for column, title in COLUMNS.items()),
            *([("note", row.note)] if row is not None and row.note else []),
            *([("probed", f"{found.at:%Y-%m-%d %H:%M} UTC")] if found else []),
            *((f"  {name}", outcome) for name, outcome in (found.outcomes if found else {}).items()),
        ]
    )


def _address(place: Endpoint) -> str:
    """Return an endpoint's base URL; of a server that a call starts, what it is."""
    if place.server is None:
        return place.address
    return f"a private port of this machine: {place.server.title}, started by its first call"


def capability_values(known: Capabilities) -> dict[str, Any]:
    """Return capabilities as JSON values: null means unknown."""
    return {**asdict(known), "telemetry_flags": dict(known.telemetry_flags)}


def _prices(client: AsyncOpenAI, place: Endpoint, model: str) -> dict[str, Decimal | None]:
    """Return dollars per million tokens by kind; None means unknown."""
    from specclient.prices.prices import Prices  # noqa: PLC0415

    prices = Prices(client.settings)

    def cost(prompt: int, completion: int) -> Decimal | None:
        return prices.predict(prompt, completion, place.name, model, price_provider=place.price_provider)

    none = cost(0, 0)
    found: dict[str, Decimal | None] = {}
    for kind, size in (("input", (_SAMPLE, 0)), ("output", (0, _SAMPLE))):
        some = cost(*size)
        found[kind] = None if some is None or none is None else (some - none) * (_PER_MILLION // _SAMPLE)
    return found


def _dollars(rate: Decimal | None) -> str:
    return render.UNKNOWN if rate is None else f"${rate.normalize():f} per million tokens"


def _engine_values(engine: str, name: str, models: Sequence[BackendModel]) -> dict[str, Any]:
    model = next((model for model in models if model.id == name), None)
    if model is None:
        known = ", ".join(f"{engine}/{model.id}" for model in models)
        raise NotFoundError(f"no model {f'{engine}/{name}'!r}; the models are {known}")
    return {
        "model": f"{engine}/{name}",
        "kind": model.kind,
        "method": model.method,
        "target": model.target,
        "draft": model.draft,
        "context": model.context,
        "dimensions": model.dimensions,
    }


def _lines(rows: list[tuple[str, str]]) -> None:
    """Print names and values; a narrow terminal wraps the values."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        render.print_paragraph(f"{name:<{width}}  {value}")
