"""The overview of ``specclient models``: providers, local models, and whether keys are set."""

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
from specclient_cli.common import render
from specclient_cli.models.show import capability_values

#: Time limit of a request of ``--check``, in seconds.
CHECK_TIMEOUT_S = 5.0


def print_overview(client: AsyncOpenAI, *, check: bool, as_json: bool) -> None:
    """Print local models and providers.

    Args:
        client: supplies the configured providers and engines.
        check: request the model list of every provider that has its key.
        as_json: print JSON.
    """
    local, missing = _local(client)
    hosted = _endpoints(client)
    answers = asyncio.run(_check_all(client, hosted)) if check else {}
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


def _local(client: AsyncOpenAI) -> tuple[list[tuple[str, BackendModel]], dict[str, str]]:
    """Return the models of each engine in this process, and the errors of unavailable engines."""
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


async def _check_all(client: AsyncOpenAI, endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Request the model list of each provider that has its key; return the outcomes as texts."""
    usable = [endpoint for endpoint in endpoints if endpoint.lacks is None]
    async with client:
        outcomes = await asyncio.gather(*(_check(client, endpoint.name) for endpoint in usable))
    return {endpoint.name: outcome for endpoint, outcome in zip(usable, outcomes, strict=True)}


async def _check(client: AsyncOpenAI, provider: str) -> str:
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
        return "set" if endpoint.lacks is None else "set, no base URL"
    if endpoint.authorizer is not None:
        return "credentials" if endpoint.has_key else "not set"
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
    """Return the source of an endpoint's prices, None if there is none. Does not load the catalogue."""
    if any(route.startswith(f"{endpoint.name}/") for route in client.settings.prices):
        return "own"
    if endpoint.price_provider == ANY_VENDOR:
        return "by model name"
    return None if endpoint.price_provider is None else "catalogue"


def _local_values(engine: str, model: BackendModel) -> dict[str, Any]:
    return {
        "model": f"{engine}/{model.id}",
        "kind": model.kind,
        "method": model.method,
        "target": model.target,
        "draft": model.draft,
        "context": model.context,
        "dimensions": model.dimensions,
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
        render.TableColumn("key variable", rank=1),
        render.TableColumn("request fields", rank=2),
        render.TableColumn("response fields", rank=3),
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
            *([answers.get(endpoint.name, "not checked")] if answers else []),
            " or ".join(endpoint.key_env) or render.UNKNOWN,
            *(known[name] for name in ("spec_in", "spec_out", "prefill", "verify")),
            _prices(endpoint, client) or render.UNKNOWN,
            endpoint.dialect,
            endpoint.address,
        ]
        lines.append(render.TableRow(cells, style=render.DIM if endpoint.lacks else ""))
    render.print_table(columns, lines)


def _short(path: str) -> str:
    """Return a path's last two parts after an ellipsis, or the whole path if it has no more."""
    parts = Path(path).parts
    return path if len(parts) < 3 else str(Path("…", *parts[-2:]))
