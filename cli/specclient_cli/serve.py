"""Turn options into a running server and what a person needs to use it: the command ``specclient serve``."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from specclient.client import AsyncOpenAI
from specclient.config import LocalModelSettings, Settings
from specclient.errors import ConfigurationError
from specclient_cli import options
from specclient_cli.state import State, pass_state

KEY_VARIABLE = "SPECCLIENT_SERVER_KEY"

#: Packages of the extra ``server``; a distribution installed without it still has this command.
_NEEDED = ("starlette", "uvicorn")


@click.command(name="serve")
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
    help=f"What requests must bring as their bearer token. Better set {KEY_VARIABLE}: other users of this "
    "machine can read a command line.",
)
@click.option(
    "--preload", is_flag=True, help="Load the local models before listening, not at the first request."
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Requests worked on at once.",
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
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Serve the engine and every provider behind OpenAI's HTTP routes.

    Any program that speaks OpenAI uses it by its base URL. Model names are PROVIDER/MODEL, a bare name of the
    default provider, or 'auto'. What is called goes into this machine's ledger, with its cost. The engine is
    loaded by the first request for it. Ctrl-C lets running answers end, within 30 s.

    \b
    Examples:
      specclient serve
      specclient serve --model local/demo --port 8000
      specclient serve --model ./llama-3.2-3b --draft ./llama-3.2-1b --preload
      SPECCLIENT_SERVER_KEY=... specclient serve --host 0.0.0.0

    Environment: SPECCLIENT_SERVER_KEY, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    _check_installed()
    from specclient.serving import Limits, bind, create_app, make_server, preload  # noqa: PLC0415
    from specclient.serving.access import is_loopback  # noqa: PLC0415

    if given["config"] is not None:
        state.config = given["config"]
    host, key = given["host"], given["api_key"]
    if not key and not is_loopback(host):
        raise ConfigurationError(
            f"host {host!r} can be reached from other machines, and there is no key: set {KEY_VARIABLE}, "
            "or leave --host out to serve this machine alone"
        )
    named = _named(state, given["models"], given["draft"])
    limits = Limits(
        running=given["max_running"],
        waiting=given["max_waiting"],
        body_bytes=given["max_body"] * 2**20,
    )
    client = AsyncOpenAI(config=named.settings)
    app = create_app(client, key=SecretStr(key) if key else None, models=named.models, limits=limits)
    sock = bind(host, given["port"])
    try:
        if given["preload"]:
            click.echo("Loading …")
            asyncio.run(preload(client, named.models or [named.settings.default_model]))
        _introduce(app.state.service.catalogue.names(), host, sock.getsockname()[1], keyed=bool(key))
        with _signals_end_it():
            make_server(app, limits).run(sockets=[sock])
    finally:
        sock.close()
    click.echo("Stopped.")


@dataclass(frozen=True)
class Named:
    """Which models are served, as routes, and the settings in which they are.

    Attributes:
        models: empty for all there are.
    """

    settings: Settings
    models: tuple[str, ...]


def _named(state: State, models: Sequence[str], draft: str | None) -> Named:
    """Return what ``--model`` and ``--draft`` name.

    Raises:
        click.UsageError: a draft for none, or for more than one.
    """
    settings = state.settings()
    if draft is not None and len(models) != 1:
        raise click.UsageError("--draft drafts for one --model; name one, once.")
    known = AsyncOpenAI(config=settings).pipeline.router.places.known
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
        folder = Path(model).expanduser()
        name = (folder.resolve() if folder.is_dir() else folder).name
        path = str(folder.resolve()) if folder.is_dir() else model
        tables[name] = LocalModelSettings(path=path, draft=draft)
        routes.append(f"local/{name}")
    local = settings.local.model_copy(update={"models": tables})
    return Named(settings.model_copy(update={"local": local}), tuple(dict.fromkeys(routes)))


def _introduce(models: Sequence[str], host: str, port: int, *, keyed: bool) -> None:
    """Say what is served, where, and how to try it."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where a client reaches it
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"
    click.echo(f"Serving {', '.join(models) or 'no model: no engine is installed, and no key is set'}")
    click.echo(f"     at {url}")
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


def _check_installed() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the server is not installed ({', '.join(missing)} missing): pip install 'specclient[server]'"
        )
