"""Turn options into a running server and what a person needs to use it: the command ``specclient serve``."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import SecretStr

from specclient.client.async_client import AsyncOpenAI
from specclient.config import LocalModelSettings, Settings
from specclient.errors import ConfigurationError, LedgerError
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.config.checks import check_checkpoints
from specclient_cli.serve.keys import check_installed, keys

if TYPE_CHECKING:
    from specclient.serving import ServerPlan
    from specclient.serving.keys.key import StoredKey

KEY_VARIABLE = "SPECCLIENT_SERVER_KEY"
LOG_VARIABLE = "SPECCLIENT_LOG_FORMAT"


@click.group(name="serve", invoke_without_command=True)
@click.option(
    "-m",
    "--model",
    "models",
    type=options.ModelName(),
    multiple=True,
    help="Serve this model and no other: PROVIDER/MODEL, or a checkpoint's folder or hub id, which becomes "
    "local/NAME; may be repeated. Default: every model of the engine and of each provider that has its key.",
)
@click.option("--draft", help="Folder or hub id of the checkpoint that drafts for the one --model.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Configuration file, as before the command's name.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; any but this machine's own needs a key.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8400, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--api-key",
    envvar=KEY_VARIABLE,
    help=f"What requests must bring as their bearer token, beside the keys of `serve keys`. Better set "
    f"{KEY_VARIABLE}: other users of this machine can read a command line.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 512),
    default=1,
    show_default=True,
    help="Processes that serve the one port. They share the ledger and its budgets; limits of keys where "
    "SPECCLIENT_REDIS_URL is set. Each would load its own copy of a local model.",
)
@click.option(
    "--model-per-worker",
    is_flag=True,
    help="Let each of several --workers load its own copy of the local models that --model names.",
)
@click.option(
    "--preload", is_flag=True, help="Load the local models before listening, not at the first request."
)
@click.option(
    "--log-format",
    type=click.Choice(["plain", "json"]),
    envvar=LOG_VARIABLE,
    default="plain",
    show_default=True,
    help="json: lines of JSON on stderr, one for each request (id, key's name, route, model, status, tokens, "
    "cost, times, acceptance; never content), and one for whatever else is logged.",
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Requests worked on at once, by each worker.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Requests that wait for their turn; one more is refused with 429.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="MiB that a request's body may have.",
)
@click.pass_context
@pass_state
def command(state: State, ctx: click.Context, /, **given: Any) -> None:
    """Serve the engine and every provider behind OpenAI's HTTP routes.

    Any program that speaks OpenAI uses it by its base URL. Model names are PROVIDER/MODEL, a bare name of the
    default provider, or 'auto'. What is called goes into this machine's ledger, with its cost. The engine is
    loaded by the first request for it. Ctrl-C lets running answers end, within 30 s. SIGHUP replaces the
    workers one by one, without an interruption.

    \b
    Examples:
      specclient serve
      specclient serve --model local/demo --port 8000
      specclient serve --model ./llama-3.2-3b --draft ./llama-3.2-1b --preload
      SPECCLIENT_SERVER_KEY=... specclient serve --host 0.0.0.0 --workers 4
      specclient serve keys create alice --budget 5/day

    Environment: SPECCLIENT_SERVER_KEY, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, SPECCLIENT_REDIS_URL,
    SPECCLIENT_LOG_FORMAT, and the providers' keys.
    """
    if given["config"] is not None:
        state.config = given["config"]
    if ctx.invoked_subcommand is not None:
        return
    check_installed()
    from specclient.serving import bind  # noqa: PLC0415 - an extra

    os.environ[LOG_VARIABLE] = given["log_format"]  # for workers, too
    plan = _plan(state, given)
    if (workers := given["workers"]) > 1:
        _check_workers(plan, each_loads=given["model_per_worker"])
    sock = bind(given["host"], given["port"])
    try:
        began = _serve(plan, sock, given["host"], workers)
    finally:
        sock.close()
    if not began:
        ctx.exit(1)
    click.echo("Stopped.")


command.add_command(keys)


def _serve(plan: ServerPlan, sock: socket.socket, host: str, workers: int) -> bool:
    """Serve until a signal ends it; returns whether it could begin."""
    from specclient.serving import (  # noqa: PLC0415 - an extra
        app_of,
        freeze_garbage,
        make_server,
        preload,
        serve_by_workers,
    )
    from specclient.serving.catalogue import ModelCatalogue  # noqa: PLC0415

    port, keyed = sock.getsockname()[1], plan.key is not None or plan.keyed
    if workers > 1:
        names = ModelCatalogue(AsyncOpenAI(config=plan.settings), plan.models).names()
        _introduce(names, host, port, keyed=keyed)
        with _signals_end_it():
            return serve_by_workers(plan, sock, workers)
    app = app_of(plan)
    if plan.preloaded:
        click.echo("Loading …")
        asyncio.run(preload(app.state.service.client, plan.preloaded))
    _introduce(app.state.service.catalogue.names(), host, port, keyed=keyed)
    server = make_server(app, plan.limits)
    freeze_garbage()
    with _signals_end_it():
        server.run(sockets=[sock])
    return True


def _plan(state: State, given: Any) -> ServerPlan:
    """Return what the options ask for.

    Raises:
        ConfigurationError: what cannot be; a host that others reach, and no key.
    """
    from specclient.serving import Limits, ServerPlan  # noqa: PLC0415 - an extra
    from specclient.serving.keys.authentication import is_loopback  # noqa: PLC0415
    from specclient.serving.workers import meter_of  # noqa: PLC0415

    host, key = given["host"], (given["api_key"] or "").strip()  # files that hold it end in a new line
    named = _named(state, given["models"], given["draft"])
    own = is_loopback(host)
    stored = _stored(named.settings, needed=not key and not own)
    usable = [each for each in stored if each.status(datetime.now(UTC)) == "active"]
    if not key and not own and not usable:
        raise ConfigurationError(
            f"host {host!r} can be reached from other machines, and there is no key: set {KEY_VARIABLE}, "
            "make one with `specclient serve keys create NAME`, or leave --host out to serve this machine "
            "alone"
        )
    if meter_of(named.settings) is None and given["workers"] > 1 and any(each.paced for each in usable):
        render.print_paragraph(
            "Each worker counts by itself what keys use of their limits; SPECCLIENT_REDIS_URL lets them "
            "share it.",
            render.DIM,
        )
    return ServerPlan(
        settings=named.settings,
        key=SecretStr(key) if key else None,
        keyed=bool(stored) or not own,
        models=named.models,
        limits=Limits(
            running=given["max_running"],
            waiting=given["max_waiting"],
            body_bytes=given["max_body"] * 2**20,
        ),
        preloaded=(named.models or (named.settings.default_model,)) if given["preload"] else (),
    )


def _stored(settings: Settings, *, needed: bool) -> list[StoredKey]:
    """Return the keys that are kept; none where they cannot be read and are not needed."""
    from specclient.serving.keys.store import KeyStore  # noqa: PLC0415 - an extra

    store = KeyStore.of(settings.ledger)
    if store is None:
        return []
    try:
        return store.all()
    except LedgerError:
        if needed:
            raise
        return []
    finally:
        store.close()


def _check_workers(plan: ServerPlan, *, each_loads: bool) -> None:
    """Refuse several workers where there can be none, or where each would load a model unasked.

    Raises:
        click.UsageError: with the way out.
    """
    if os.name == "nt":
        raise click.UsageError("--workers needs a system on which processes can share a port's socket.")
    engines = AsyncOpenAI(config=plan.settings).pipeline.destinations.backend_names()
    local = [name for name in (*plan.models, *plan.preloaded) if name.partition("/")[0] in engines]
    if local and not each_loads:
        raise click.UsageError(
            f"each worker would load its own copy of {local[0]}: leave --workers out (one engine batches all "
            "requests), or say --model-per-worker."
        )


@dataclass(frozen=True)
class ServedModels:
    """Which models are served, as routes, and the settings in which they are.

    Attributes:
        models: empty for all there are.
    """

    settings: Settings
    models: tuple[str, ...]


def _named(state: State, models: Sequence[str], draft: str | None) -> ServedModels:
    """Return what ``--model`` and ``--draft`` name.

    Raises:
        click.UsageError: a draft for none, or for more than one.
        ConfigurationError: what can be no checkpoint.
    """
    settings = state.settings()
    if draft is not None and len(models) != 1:
        raise click.UsageError("--draft drafts for one --model; name one, once.")
    known = AsyncOpenAI(config=settings).pipeline.destinations.known
    routes: list[str] = []
    tables = dict(settings.local.models)
    for model in models:
        is_route = model == options.AUTO or ("/" in model and known(model.partition("/")[0]))
        if draft is None and is_route and not Path(model).is_dir():
            routes.append(model)
            continue
        if model.startswith("local/"):
            raise click.UsageError(
                f"{model} has its own draft; name a checkpoint's folder or hub id with --draft."
            )
        check_checkpoints(model, draft)
        folder = Path(model).expanduser()
        name = (folder.resolve() if folder.is_dir() else folder).name
        path = str(folder.resolve()) if folder.is_dir() else model
        tables[name] = LocalModelSettings(path=path, draft=draft)
        routes.append(f"local/{name}")
    local = settings.local.model_copy(update={"models": tables})
    return ServedModels(settings.model_copy(update={"local": local}), tuple(dict.fromkeys(routes)))


def _introduce(models: Sequence[str], host: str, port: int, *, keyed: bool) -> None:
    """Say what is served, where, and how to try it."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where a client reaches it
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"
    click.echo(f"Serving {', '.join(models) or 'no model: no engine is installed, and no key is set'}")
    click.echo(f"     at {url}")
    click.echo(f"  watch {url.removesuffix('/v1')}/dashboard")
    click.echo(f"    try {curl_line(url, models[0] if models else options.AUTO, keyed=keyed)}")


def curl_line(url: str, model: str, *, keyed: bool) -> str:
    """Return a command for a shell that asks a model something; the key is named, not shown."""
    body = {"model": model, "max_tokens": 32, "messages": [{"role": "user", "content": "def fibonacci(n):"}]}
    key = f'-H "Authorization: Bearer ${KEY_VARIABLE}" ' if keyed else ""
    sent = shlex.quote(json.dumps(body))
    return f"curl {url}/chat/completions {key}-H 'Content-Type: application/json' -d {sent}"


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Let a signal end the server and not this program: uvicorn raises it again once all is done."""
    ours = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
