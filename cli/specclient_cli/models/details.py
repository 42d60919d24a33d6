"""Turn a model's name into what is known of it, and a few requests into more: ``models show``, ``probe``."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from specclient.errors import APIResponseValidationError, APIStatusError, ConfigurationError, NotFoundError
from specclient.providers import PRESETS, Endpoint, probe_cache
from specclient.providers.capability_table import COLUMNS, words
from specclient.types.capabilities import Capabilities
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.telemetry.probe import ProbeReply, ProbeReport
    from specclient.types.backend import BackendModel

#: Statuses that refuse a request as such: its fields, and of completions the route.
_REFUSALS: Mapping[str, frozenset[int]] = {
    "chat": frozenset({400, 422, 501}),
    "completion": frozenset({400, 404, 405, 422, 501}),
}
_LONGEST = 160  # letters of a refusal
_PER_MILLION = 10**6
_SAMPLE = 1000  # tokens: few, since some prices rise with the length of a prompt


@click.command(name="show")
@click.argument("model", type=options.ModelName())
@options.json_option
@pass_state
def show(state: State, model: str, as_json: bool) -> None:
    """Show the prices of a model, and what is known of it.

    MODEL is PROVIDER/MODEL. Nothing is sent. What its endpoint exposes of speculation is told as `specclient
    models` does for all providers. Prices are dollars per million tokens, as of now. What a probe
    has found stands beneath, with its date; it fills in what is unknown otherwise.

    \b
    Examples:
      specclient models show openai/gpt-4.1
      specclient models show mine/llama --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_PROBES.
    """
    client = state.parts()
    places = client.pipeline.destinations
    provider, name = places.split(model)
    place = places.get(provider)
    if not isinstance(place, Endpoint):
        values = _engine_values(provider, name, place.models())
        if as_json:
            click.echo(json.dumps(values))
        else:
            _lines([(key, render.UNKNOWN if value is None else str(value)) for key, value in values.items()])
        return
    known = place.capabilities_of(name)
    found = probe_cache.read_probe(os.environ, place.base_url, name)
    prices = _prices(client, place, name)
    if as_json:
        values = {
            "model": f"{provider}/{name}",
            "base_url": place.address,
            "dialect": place.dialect,
            "prices": prices,
            "capabilities": capability_values(known),
            "probe": None if found is None else {**asdict(found), "at": found.at.isoformat()},
        }
        click.echo(json.dumps(values, default=str))
        return
    told = words(known)
    row = PRESETS.get(provider)
    _lines(
        [
            ("model", f"{provider}/{name}"),
            ("base URL", place.address),
            ("dialect", place.dialect),
            *((f"price of {kind}", _dollars(rate)) for kind, rate in prices.items()),
            *((title.lower(), told[column]) for column, title in COLUMNS.items()),
            *([("note", row.note)] if row is not None and row.note else []),
            *([("probed", f"{found.at:%Y-%m-%d %H:%M} UTC")] if found else []),
            *((f"  {name}", outcome) for name, outcome in (found.outcomes if found else {}).items()),
        ]
    )


@click.command(name="probe")
@click.argument("model", type=options.ModelName())
@click.option(
    "--prefill", is_flag=True, help="Try, too, whether an unfinished turn is continued: one request."
)
@options.json_option
@pass_state
def probe(state: State, model: str, prefill: bool, as_json: bool) -> None:
    """Find out what a model takes and tells of speculation.

    MODEL is PROVIDER/MODEL. This costs what the calls cost: at most 5 requests of about 30 tokens, each of
    which may generate at most 16. They are in the ledger with the tag "probe".

    An answer alone proves nothing, because most servers ignore unknown fields: each finding is confirmed by
    a second request. "honoured": the server uses the field, as confirmed. "ignored", "refused": it does not.
    "untelemetered": it uses the field, but does not report the outcome. "unknown": no conclusion. The result
    is stored by URL and model, and fills in capabilities that are unknown.

    \b
    Examples:
      specclient models probe mine/llama
      specclient models probe openai/gpt-4.1-nano --prefill
      specclient models probe mine/llama --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_PROBES (where answers are kept, or "off"), the provider's key.
    """
    from specclient.client.async_client import AsyncOpenAI  # noqa: PLC0415 - keeps completion quick

    if model == options.AUTO:
        raise click.UsageError("auto stands for several models; name one of them as PROVIDER/MODEL.")
    client = AsyncOpenAI(config=state.settings())
    places = client.pipeline.destinations
    provider, name = places.split(model)
    place = places.get(provider)
    if not isinstance(place, Endpoint):
        raise ConfigurationError(
            f"{model} runs in this process and is known: `specclient models show {model}` tells"
        )
    asking = _ProbeSession(client, f"{provider}/{name}")
    known = place.capabilities
    if place.dialect != "openai":  # no other language has the completions by which prompts are scored
        known = replace(known, verification=False)
    report = asyncio.run(asking.probe(known, prefill=prefill))
    outcomes = {key: f"{found.outcome}: {found.evidence}" for key, found in report.findings.items()}
    answer = probe_cache.ProbeRecord(
        at=datetime.now(UTC), outcomes=outcomes, capabilities=report.capabilities()
    )
    file = probe_cache.write_probe(os.environ, place.base_url, name, answer)
    if as_json:
        values = {
            "model": f"{provider}/{name}",
            "base_url": place.address,
            "at": answer.at.isoformat(),
            "requests": report.requests,
            "cost": asking.cost,
            "findings": {key: asdict(found) for key, found in report.findings.items()},
            "capabilities": answer.capabilities,
            "file": None if file is None else str(file),
        }
        click.echo(json.dumps(values, default=str))
        return
    _report(report, asking.cost, file)


def capability_values(known: Capabilities) -> dict[str, Any]:
    """Return capabilities as JSON can hold them: null for unknown, false for no."""
    return {**asdict(known), "telemetry_flags": dict(known.telemetry_flags)}


class _ProbeSession:
    """Asks one model, and sums up what that cost.

    Attributes:
        cost: in dollars; None once a call was unpriced.
    """

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client = client
        self._model = model
        self.cost: Decimal | None = Decimal(0)

    async def probe(self, known: Capabilities, *, prefill: bool) -> ProbeReport:
        """Return what the model takes and tells."""
        from specclient.telemetry import probe as probing  # noqa: PLC0415 - keeps completion quick

        async with self._client:
            return await probing.probe(self._ask, known, prefill=prefill)

    async def _ask(
        self, kind: Literal["chat", "completion"], purpose: str, params: Mapping[str, Any]
    ) -> ProbeReply:
        from specclient.telemetry.probe import ProbeReply  # noqa: PLC0415

        create = self._client.chat.completions.create if kind == "chat" else self._client.completions.create
        own = {name: params[name] for name in ("messages", "prompt", "max_tokens") if name in params}
        # Not as parameters of ours: what is known to be lost would be refused before it is sent.
        tried = {name: value for name, value in params.items() if name not in own}
        try:
            answer = await create(model=self._model, extra_body=tried, tags={"probe": purpose}, **own)
        except APIStatusError as error:
            if error.status_code not in _REFUSALS[kind]:
                raise
            return ProbeReply(refusal=f"{error.status_code}: {' '.join(_said(error).split())[:_LONGEST]}")
        except APIResponseValidationError:
            if kind == "chat":
                raise
            return ProbeReply(refusal="what came was no completion")
        spent = answer.meta.cost.total
        self.cost = None if self.cost is None or spent is None else self.cost + spent
        return ProbeReply(answer)


def _said(error: APIStatusError) -> str:
    told = error.body.get("message") if isinstance(error.body, dict) else None
    return str(told or error)


def _report(report: ProbeReport, cost: Decimal | None, file: Path | None) -> None:
    columns = [render.TableColumn("what"), render.TableColumn("outcome")]
    styles = {"honoured": render.GOOD, "refused": render.BAD}
    lines = [
        render.TableRow([name, found.outcome], style=styles.get(found.outcome, ""), note=found.evidence)
        for name, found in report.findings.items()
    ]
    render.print_table(columns, lines)
    click.echo()
    spent = "of unknown cost" if cost is None else f"for ${cost}"
    kept = f"remembered in {file}" if file else "not remembered: SPECCLIENT_PROBES is off"
    render.print_paragraph(f"{report.requests} requests {spent}; {kept}")


def _prices(client: AsyncOpenAI, place: Endpoint, model: str) -> dict[str, Decimal | None]:
    """Return dollars per million tokens, None for unknown."""
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
        raise NotFoundError(f"no model {f'{engine}/{name}'!r}; there are {known}")
    return {
        "model": f"{engine}/{name}",
        "method": model.method,
        "target": model.target,
        "draft": model.draft,
        "context": model.context,
    }


def _lines(rows: list[tuple[str, str]]) -> None:
    """Print names and values; values folded in a narrow terminal."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        render.print_paragraph(f"{name:<{width}}  {value}")
