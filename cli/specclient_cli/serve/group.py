"""``specclient serve``: the server."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.client.async_client import AsyncOpenAI
from specclient_cli.common import parameter_types
from specclient_cli.common.state import State, pass_state
from specclient_cli.serve.keys.key_store import check_installed

if TYPE_CHECKING:
    from specclient.serving import ServerPlan
from specclient_cli.common.lazy_group import CommandTable, LazyGroup
from specclient_cli.serve.plan import KEY_VARIABLE, check_workers, make_plan

LOG_VARIABLE = "SPECCLIENT_LOG_FORMAT"


#: The commands below ``specclient serve``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "keys": ("specclient_cli.serve.keys.group:command", "Make, list and revoke the API keys of a server."),
}


@click.group(name="serve", cls=LazyGroup, commands_table=COMMANDS, invoke_without_command=True)
@click.option(
    "-m",
    "--model",
    "models",
    type=parameter_types.ModelName(),
    multiple=True,
    help="Serve only this model: PROVIDER/MODEL, or the folder or hub id of a checkpoint, which is served as "
    "local/NAME; may be repeated. Default: all models of the engine and of each provider that has its key.",
)
@click.option("--draft", help="Folder or hub id of the draft checkpoint for a single --model.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Configuration file, as with `specclient --config`.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. An address that other machines can reach requires a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8400,
    show_default=True,
    help="Port; 0 chooses a free one.",
)
@click.option(
    "--api-key",
    envvar=KEY_VARIABLE,
    help=f"Key that requests must send as their bearer token, in addition to the keys of `serve keys`. "
    f"Prefer {KEY_VARIABLE}, because other users of this machine can read a command line.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 512),
    default=1,
    show_default=True,
    help="Number of processes that serve the port. They share the ledger and its budgets and, if "
    "SPECCLIENT_REDIS_URL is set, the rate limits of keys. Each loads its own copy of a local model.",
)
@click.option(
    "--model-per-worker",
    is_flag=True,
    help="Allow each of several --workers to load its own copy of the local models in --model.",
)
@click.option(
    "--preload", is_flag=True, help="Load local models before listening instead of at the first request."
)
@click.option(
    "--log-format",
    type=click.Choice(["plain", "json"]),
    envvar=LOG_VARIABLE,
    default="plain",
    show_default=True,
    help="json writes JSON lines to stderr, one for each request (id, name of the key, route, model, status, "
    "tokens, cost, times, acceptance rate; never content) and one for each other log record.",
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum concurrent requests of each worker.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Maximum waiting requests; further ones get status 429.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Maximum size of a request body in MiB.",
)
@click.pass_context
@pass_state
def command(state: State, ctx: click.Context, /, **given: Any) -> None:
    """Serve local models and all providers through the OpenAI HTTP API.

    Any OpenAI client can use the server by its base URL. Model names are PROVIDER/MODEL, the bare name of a
    model of the default provider, or 'auto'. Calls and their costs are recorded in the ledger. The first
    request for a local model loads it. Ctrl-C stops the server after running requests have ended, within
    30 s. SIGHUP replaces the workers one by one without interruption.

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

    os.environ[LOG_VARIABLE] = given["log_format"]  # workers inherit it
    plan = make_plan(state, given)
    if (workers := given["workers"]) > 1:
        check_workers(plan, each_loads=given["model_per_worker"])
    sock = bind(given["host"], given["port"])
    try:
        started = _serve(plan, sock, given["host"], workers)
    finally:
        sock.close()
    if not started:
        ctx.exit(1)
    click.echo("Stopped.")


def _serve(plan: ServerPlan, sock: socket.socket, host: str, workers: int) -> bool:
    """Serve until a signal stops the server; return whether it started."""
    from specclient.serving import (  # noqa: PLC0415 - an extra
        app_of,
        limit_kept_memory,
        make_server,
        preload,
        raise_descriptor_limit,
        serve_by_workers,
        shorten_switch_interval,
        tune_garbage_collection,
    )
    from specclient.serving.catalogue import ModelCatalogue  # noqa: PLC0415

    raise_descriptor_limit()  # before workers inherit it
    port, keyed = sock.getsockname()[1], plan.key is not None or plan.keyed
    if workers > 1:
        names = ModelCatalogue(AsyncOpenAI(config=plan.settings), plan.models).names()
        _introduce(names, host, port, keyed=keyed)
        with _ignore_repeated_signal():
            return serve_by_workers(plan, sock, workers)
    limit_kept_memory()
    app = app_of(plan)
    if plan.preloaded:
        click.echo("Loading …")
        asyncio.run(preload(app.state.service.client, plan.preloaded))
    _introduce(app.state.service.catalogue.names(), host, port, keyed=keyed)
    server = make_server(app, plan.limits)
    tune_garbage_collection()
    shorten_switch_interval()
    with _ignore_repeated_signal():
        server.run(sockets=[sock])
    return True


def _introduce(models: Sequence[str], host: str, port: int, *, keyed: bool) -> None:
    """Print the models, the URLs and an example request."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address that a local client uses
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"
    click.echo(f"Serving {', '.join(models) or 'no models: no engine is installed and no key is set'}")
    click.echo(f"     at {url}")
    click.echo(f"  watch {url.removesuffix('/v1')}/dashboard")
    click.echo(f"    try {curl_line(url, models[0] if models else parameter_types.AUTO, keyed=keyed)}")


def curl_line(url: str, model: str, *, keyed: bool) -> str:
    """Return a shell command that sends a request; it contains the variable of the key, not its value."""
    body = {"model": model, "max_tokens": 32, "messages": [{"role": "user", "content": "def fibonacci(n):"}]}
    key = f'-H "Authorization: Bearer ${KEY_VARIABLE}" ' if keyed else ""
    sent = shlex.quote(json.dumps(body))
    return f"curl {url}/chat/completions {key}-H 'Content-Type: application/json' -d {sent}"


@contextmanager
def _ignore_repeated_signal() -> Iterator[None]:
    """Ignore a signal in this program; uvicorn handles it and raises it again after the shutdown."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
