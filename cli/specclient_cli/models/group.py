"""Turn the configuration into what can be asked, and what is known of it: ``specclient models``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from specclient.client.async_client import AsyncOpenAI
from specclient.config import ANY_VENDOR
from specclient.errors import ConfigurationError, OpenAIError
from specclient.providers import Endpoint
from specclient.providers.capability_table import words
from specclient.types.backend import BackendModel
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.models.details import capability_values, probe, show

#: Seconds that a provider has for answering ``--check``.
CHECK_TIMEOUT_S = 5.0


@click.group(name="models", invoke_without_command=True)
@click.option("--check", is_flag=True, help="Ask every provider that has its key whether it answers.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, check: bool, as_json: bool) -> None:
    """List providers and local models, and which keys are set.

    Without --check nothing is sent. A key itself is never shown, only whether it is there and the environment
    variable it is read from. Any model is used as PROVIDER/MODEL.

    What a provider exposes of speculation: the fields of a request that steer it; the form in which answers
    tell of it; how an unfinished turn is continued (prefill); how the tokens of a prompt are scored
    (verification). A wide terminal, a pipe or --json shows all of it.

    \b
    Examples:
      specclient models
      specclient models --check
      specclient models list openai
      specclient models show openai/gpt-4.1
      specclient models probe mine/llama

    Environment: SPECCLIENT_CONFIG, and the providers' keys.
    """
    if ctx.invoked_subcommand is not None:
        if check or as_json:
            raise click.UsageError(f"options of `models {ctx.invoked_subcommand}` stand after its name.")
        return
    client = ctx.ensure_object(State).parts()
    local, missing = _local(client)
    hosted = _endpoints(client)
    answers = asyncio.run(_ask_all(client, hosted)) if check else {}
    if as_json:
        values = {
            "local": [_local_values(name, model) for name, model in local],
            "unavailable": missing,
            "providers": [_values(endpoint, answers, client) for endpoint in hosted],
        }
        click.echo(json.dumps(values))
        return
    _show_local(local, missing)
    click.echo()
    _show_providers(hosted, answers, client)


@command.command(name="list")
@click.argument("provider", type=options.ProviderName())
@options.json_option
@pass_state
def list_models(state: State, provider: str, as_json: bool) -> None:
    """Ask a provider which models it serves.

    Prints their names, one a line. PROVIDER is the part of a model's name before the slash; `specclient
    models` lists them.

    \b
    Examples:
      specclient models list local
      specclient models list openai --json

    Environment: SPECCLIENT_CONFIG, and the provider's key.
    """
    with state.client() as client:
        found = client.models.list(provider=provider).data
    if as_json:
        click.echo(json.dumps([model.to_dict() for model in found]))
        return
    for model in found:
        click.echo(model.id if model.id.startswith(f"{provider}/") else f"{provider}/{model.id}")


def _local(client: AsyncOpenAI) -> tuple[list[tuple[str, BackendModel]], dict[str, str]]:
    """Return the models of each engine in this process, and why an engine has none."""
    places = client.pipeline.destinations
    found: list[tuple[str, BackendModel]] = []
    missing: dict[str, str] = {}
    for name in places.backend_names():
        try:
            engine = places.get(name)
            if not isinstance(engine, Endpoint):
                found += [(name, model) for model in engine.models()]
        except ConfigurationError as error:
            missing[name] = str(error)
    return found, missing


def _endpoints(client: AsyncOpenAI) -> list[Endpoint]:
    places = client.pipeline.destinations
    every = (places.get(name) for name in places.names() if name not in places.backend_names())
    return [place for place in every if isinstance(place, Endpoint)]


async def _ask_all(client: AsyncOpenAI, endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Return what each provider answers to a request for its models, in words."""
    usable = [endpoint for endpoint in endpoints if endpoint.lacks is None]
    async with client:
        told = await asyncio.gather(*(_ask(client, endpoint.name) for endpoint in usable))
    return {endpoint.name: words for endpoint, words in zip(usable, told, strict=True)}


async def _ask(client: AsyncOpenAI, provider: str) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return f"reachable, {len((await client.models.list(provider=provider)).data)} models"
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S:g} s"
    except OpenAIError as error:
        status = getattr(error, "status_code", None)
        return f"answers {status}" if status else "unreachable"


def _key(endpoint: Endpoint) -> str:
    if endpoint.key is not None:
        return "set" if endpoint.lacks is None else "set, no address"
    return "not set" if endpoint.key_required else "not needed"


def _values(endpoint: Endpoint, answers: dict[str, str], client: AsyncOpenAI) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "base_url": endpoint.address,
        "dialect": endpoint.dialect,
        "key": _key(endpoint),
        "key_env": list(endpoint.key_env),
        "prices": _prices(endpoint, client),
        "capabilities": capability_values(endpoint.capabilities),
        "check": answers.get(endpoint.name),
    }


def _prices(endpoint: Endpoint, client: AsyncOpenAI) -> str | None:
    """Return where prices come from, None where there are none; the catalogue is not opened for it."""
    if any(route.startswith(f"{endpoint.name}/") for route in client.settings.prices):
        return "own"
    if endpoint.price_provider == ANY_VENDOR:
        return "by model name"
    return None if endpoint.price_provider is None else "catalogue"


def _local_values(engine: str, model: BackendModel) -> dict[str, Any]:
    return {
        "model": f"{engine}/{model.id}",
        "method": model.method,
        "target": model.target,
        "draft": model.draft,
        "context": model.context,
    }


def _show_local(local: list[tuple[str, BackendModel]], missing: dict[str, str]) -> None:
    lines = [
        render.TableRow(
            [
                f"{engine}/{model.id}",
                model.method,
                render.UNKNOWN if model.context is None else str(model.context),
                _short(model.target),
                render.UNKNOWN if model.draft is None else _short(model.draft),
            ]
        )
        for engine, model in local
    ]
    columns = [
        render.TableColumn("local model"),
        render.TableColumn("method"),
        render.TableColumn("context", right=True, rank=3),
        render.TableColumn("target", rank=1),
        render.TableColumn("draft", rank=2),
    ]
    render.print_table(columns, lines)
    for name, reason in missing.items():
        render.print_paragraph(f"{name}: {reason}", render.BAD)


def _show_providers(endpoints: list[Endpoint], answers: dict[str, str], client: AsyncOpenAI) -> None:
    columns = [
        render.TableColumn("provider"),
        render.TableColumn("key"),
        *([render.TableColumn("answer")] if answers else []),
        render.TableColumn("read from", rank=1),
        render.TableColumn("in a request", rank=2),
        render.TableColumn("in an answer", rank=3),
        render.TableColumn("prefill", rank=5),
        render.TableColumn("verification", rank=4),
        render.TableColumn("prices", rank=6),
        render.TableColumn("dialect", rank=7),
        render.TableColumn("base URL", rank=8),
    ]
    lines = []
    for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.lacks is not None):
        known = words(endpoint.capabilities)
        cells = [
            endpoint.name,
            _key(endpoint),
            *([answers.get(endpoint.name, "not asked")] if answers else []),
            " or ".join(endpoint.key_env) or render.UNKNOWN,
            *(known[name] for name in ("spec_in", "spec_out", "prefill", "verify")),
            _prices(endpoint, client) or render.UNKNOWN,
            endpoint.dialect,
            endpoint.address,
        ]
        lines.append(render.TableRow(cells, style=render.DIM if endpoint.lacks else ""))
    render.print_table(columns, lines)


def _short(path: str) -> str:
    """Shorten a checkpoint's path to what tells it from others."""
    parts = Path(path).parts
    return path if len(parts) < 3 else str(Path("…", *parts[-2:]))


command.add_command(show)
command.add_command(probe)
