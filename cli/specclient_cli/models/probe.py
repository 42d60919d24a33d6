"""``specclient models probe``: send a few requests to find out a model's capabilities."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from specclient.errors import APIResponseValidationError, APIStatusError, ConfigurationError
from specclient.providers import Endpoint, probe_cache
from specclient.types.capabilities import Capabilities
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.calls import checked_answer
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.telemetry.probe import ProbeReply, ProbeReport

#: Statuses that reject a request because of its fields, or because there is no route for completions.
_REFUSALS: Mapping[str, frozenset[int]] = {
    "chat": frozenset({400, 422, 501}),
    "completion": frozenset({400, 404, 405, 422, 501}),
}
_LONGEST = 160  # characters of a rejection's message


@click.command(name="probe")
@click.argument("model", type=parameter_types.ModelName())
@click.option(
    "--prefill", is_flag=True, help="Also test whether an unfinished turn is continued; one more request."
)
@options.json_option
@pass_state
def command(state: State, model: str, prefill: bool, as_json: bool) -> None:
    """Send a few requests to find out what a model supports.

    MODEL is PROVIDER/MODEL. The probe sends at most 5 requests of about 30 tokens, each of which generates at
    most 16 tokens, and costs what these calls cost. They are in the ledger with the tag "probe".

    A response alone proves nothing, because most servers ignore unknown fields: each finding is confirmed by
    a second request. "honoured": the server uses the field, as confirmed. "ignored", "refused": it does not.
    "untelemetered": it uses the field, but does not report the outcome. "unknown": no conclusion. The result
    is stored by URL and model, and fills in capabilities that are unknown.

    \b
    Examples:
      specclient models probe mine/llama
      specclient models probe openai/gpt-4.1-nano --prefill
      specclient models probe mine/llama --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_PROBES (where results are stored, or "off"), the provider's
    key.
    """
    from specclient.client.async_client import AsyncOpenAI  # noqa: PLC0415 - keeps completion quick

    client = AsyncOpenAI(config=state.settings())
    places = client.pipeline.destinations
    if places.resolve(model) == parameter_types.AUTO:
        raise click.UsageError("auto stands for several models; give one of them as PROVIDER/MODEL.")
    provider, name = places.split(model)
    place = places.of_model(provider, name)
    if not isinstance(place, Endpoint):
        raise ConfigurationError(
            f"{model} runs in this process and needs no probe; use `specclient models show {model}`"
        )
    session = _ProbeSession(client, f"{provider}/{name}")
    known = place.capabilities
    if place.dialect != "openai":  # only this API has the completions endpoint that scores prompts
        known = replace(known, verification=False)
    report = asyncio.run(session.probe(known, prefill=prefill))
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
            "cost": session.cost,
            "findings": {key: asdict(found) for key, found in report.findings.items()},
            "capabilities": answer.capabilities,
            "file": None if file is None else str(file),
        }
        click.echo(json.dumps(values, default=str))
        return
    _report(report, session.cost, file)


class _ProbeSession:
    """Sends the requests of a probe and sums their cost.

    Attributes:
        cost: dollars; None if a call was unpriced.
    """

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client = client
        self._model = model
        self.cost: Decimal | None = Decimal(0)

    async def probe(self, known: Capabilities, *, prefill: bool) -> ProbeReport:
        """Return the findings about the model."""
        from specclient.telemetry import probe as probing  # noqa: PLC0415 - keeps completion quick

        async with self._client:
            return await probing.probe(self._ask, known, prefill=prefill)

    async def _ask(
        self, kind: Literal["chat", "completion"], purpose: str, params: Mapping[str, Any]
    ) -> ProbeReply:
        from specclient.telemetry.probe import ProbeReply  # noqa: PLC0415

        create = self._client.chat.completions.create if kind == "chat" else self._client.completions.create
        own = {name: params[name] for name in ("messages", "prompt", "max_tokens") if name in params}
        # As extra_body, because the client refuses parameters that it knows to be unsupported before sending.
        tested = {name: value for name, value in params.items() if name not in own}
        try:
            answer = checked_answer(
                await create(model=self._model, extra_body=tested, tags={"probe": purpose}, **own)
            )
        except APIStatusError as error:
            if error.status_code not in _REFUSALS[kind]:
                raise
            return ProbeReply(refusal=f"{error.status_code}: {' '.join(_message(error).split())[:_LONGEST]}")
        except APIResponseValidationError:
            if kind == "chat":
                raise
            return ProbeReply(refusal="the response is not a completion")
        spent = answer.meta.cost.total
        self.cost = None if self.cost is None or spent is None else self.cost + spent
        return ProbeReply(answer)


def _message(error: APIStatusError) -> str:
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return str(message or error)


def _report(report: ProbeReport, cost: Decimal | None, file: Path | None) -> None:
    columns = [render.TableColumn("capability"), render.TableColumn("outcome")]
    styles = {"honoured": render.GOOD, "refused": render.BAD}
    lines = [
        render.TableRow([name, found.outcome], style=styles.get(found.outcome, ""), note=found.evidence)
        for name, found in report.findings.items()
    ]
    render.print_table(columns, lines)
    click.echo()
    spent = "of unknown cost" if cost is None else f"for ${cost}"
    stored = f"stored in {file}" if file else "not stored: SPECCLIENT_PROBES is off"
    render.print_paragraph(f"{report.requests} requests {spent}; {stored}")
