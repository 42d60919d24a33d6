"""Turn the configuration into a file, a list of settings or a list of problems: ``specclient config``."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel, SecretStr

from specclient.config import ENVIRONMENT, FILE_NAME, Settings
from specclient.errors import ConfigurationError
from specclient.providers.endpoint import shown_url
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient_cli.common import options, render
from specclient_cli.common.state import State, known_settings, pass_state
from specclient_cli.config import checks
from specclient_cli.config.template import TEMPLATE

#: Settings that may hold a secret: shown as set or not set.
_SECRET = ("api_key", "headers")
_URLS = ("base_url", "metrics")


class SettingName(options.ParameterType):
    """The dotted name of a setting."""

    name = "key"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = [key for key, _, _ in _flat(known_settings(ctx) or Settings())]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group(name="config")
def command() -> None:
    """Write, show and check the configuration.

    Arguments stand over environment variables, those over specclient.toml, and that over defaults. The file
    is looked for at $SPECCLIENT_CONFIG, else in the working folder, else in the user's configuration folder.

    \b
    Examples:
      specclient config init
      specclient config show
    """


@command.command()
@click.option(
    "--path",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Where to write. Default: --config, else SPECCLIENT_CONFIG, else ./{FILE_NAME}.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_state
def init(state: State, path: Path | None, force: bool) -> None:
    """Write a specclient.toml in which every setting is explained and commented out.

    The file appears whole or not at all, readable by its owner alone: it may come to hold keys.

    \b
    Examples:
      specclient config init
      specclient config init --path ~/.config/specclient/specclient.toml

    Environment: SPECCLIENT_CONFIG.
    """
    named = path or state.config or Path(os.environ.get("SPECCLIENT_CONFIG") or FILE_NAME)
    target = named.expanduser()
    if target.exists() and not force:
        raise ConfigurationError(f"{target} is there already; --force replaces it, --path names another")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, TEMPLATE)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {target}: {error.strerror or error}; name another file with --path"
        ) from None
    click.echo(f"wrote {target}")


def write_atomically(target: Path, text: str) -> None:
    """Write a file beside its place and move it there, so that nobody ever sees half of it."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # for its owner's eyes only
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def replace_file(target: Path, text: str) -> None:
    """Write a file whole, over one whose permissions stay."""
    mode = target.stat().st_mode if target.exists() else None
    write_atomically(target, text)
    if mode is not None:
        target.chmod(mode)


@command.command()
@click.argument("keys", nargs=-1, type=SettingName())
@options.json_option
@pass_state
def show(state: State, keys: tuple[str, ...], as_json: bool) -> None:
    """Show every setting with its value and where it comes from; KEYS narrows it to these and those below.

    Keys and headers are shown as set or not set, never their value.

    \b
    Examples:
      specclient config show
      specclient config show candidates local
      specclient config show --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, SPECCLIENT_TRANSPORT, SPECCLIENT_MODEL,
    SPECCLIENT_REDIS_URL.
    """
    settings = state.settings()
    every = _flat(settings)
    found = [row for row in every if not keys or any(_under(row[0], key) for key in keys)]
    if not found:
        known = ", ".join(dict.fromkeys(key.partition(".")[0] for key, _, _ in every))
        raise click.UsageError(f"no setting is named {' or '.join(keys)}; there are {known}.")
    if as_json:
        values = {key: {"value": value, "source": source} for key, value, source in found}
        click.echo(
            json.dumps({"file": str(settings.source) if settings.source else None, "settings": values})
        )
        return
    columns = [render.TableColumn("setting"), render.TableColumn("from", rank=1), render.TableColumn("value")]
    render.print_paragraph(
        f"file: {settings.source or 'none; `specclient config init` writes one'}", render.DIM
    )
    render.print_table(
        columns, [render.TableRow([key, source, _shown(value)]) for key, value, source in found]
    )


@command.command()
@options.json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the file, the ledger, the keys and the local engine; nothing is sent.

    Ends with exit code 3 where something that the configuration relies on is missing. A key that only an
    unused provider would need is no problem, and is mentioned.

    \b
    Examples:
      specclient config check
      specclient --config other.toml config check

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    findings = checks.run(ctx.ensure_object(State))
    if as_json:
        click.echo(json.dumps([{"about": f.about, "level": f.level, "text": f.text} for f in findings]))
    else:
        styles = {"ok": render.GOOD, "note": render.DIM, "problem": render.BAD}
        for f in findings:
            render.print_paragraph(f"{f.level:<8} {f.about}: {f.text}", styles[f.level])
    if any(f.level == "problem" for f in findings):
        ctx.exit(3)


def _flat(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return (dotted name, plain value, where it comes from) of every setting."""
    rows: list[tuple[str, Any, str]] = []
    from_environment = {key: name for name, key in ENVIRONMENT.items() if os.environ.get(name)}

    def walk(prefix: str, table: BaseModel, source: str | None) -> None:
        for name in type(table).model_fields:
            if table is settings and name == "source":
                continue
            key = f"{prefix}{name}"
            origin = "file" if name in table.model_fields_set else "default"
            if key in from_environment:
                origin = from_environment[key]
            add(key, getattr(table, name), source if source == "default" else origin)

    def add(key: str, value: Any, source: str) -> None:
        if isinstance(value, BaseModel):
            walk(f"{key}.", value, source)
        elif isinstance(value, dict) and any(isinstance(inner, BaseModel) for inner in value.values()):
            for name, inner in value.items():
                walk(f"{key}.{name}.", inner, source)
        else:
            rows.append((key, _plain(key, value), source))

    walk("", settings, None)
    return rows


def _plain(key: str, value: Any) -> Any:
    """Return a value as JSON can hold it, a secret as whether it is set, a database URL without password."""
    if key.rpartition(".")[2] in _SECRET or isinstance(value, SecretStr):
        return "set" if value else "not set"
    if key.rpartition(".")[2] in _URLS and isinstance(value, str):
        return shown_url(value)
    if key == "ledger":
        from specclient.ledger.ledger import Ledger  # noqa: PLC0415 - imports the database toolkit

        return Ledger(value).location
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Capabilities):
        return {
            name: each for name, each in asdict(value).items() if each != getattr(UNKNOWN_CAPABILITIES, name)
        }
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return render.UNKNOWN
    if isinstance(value, list):
        return ", ".join(map(str, value)) or render.UNKNOWN
    return (str(value) or render.UNKNOWN) if value != {} else render.UNKNOWN


def _under(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")
