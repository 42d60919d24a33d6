"""``specclient config show``: every setting, its value and where it comes from."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel, SecretStr

from specclient.config import ENVIRONMENT, Settings
from specclient.runtime.masked_urls import mask_url, mask_url_passwords
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, known_settings, pass_state

#: Settings that may contain a secret; only whether they are set is shown.
_SECRET = ("api_key", "headers")
_URLS = ("base_url", "metrics")


class SettingName(parameter_types.ParameterType):
    """The dotted name of a setting."""

    name = "key"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = [key for key, _, _ in _flat(known_settings(ctx) or Settings())]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(name="show")
@click.argument("keys", nargs=-1, type=SettingName())
@options.json_option
@pass_state
def command(state: State, keys: tuple[str, ...], as_json: bool) -> None:
    """Show every setting with its value and source.

    KEYS limits the output to these settings and the ones below them. The values of API keys and headers are
    never shown, only whether they are set.

    \b
    Examples:
      specclient config show
      specclient config show candidates local
      specclient config show --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, SPECCLIENT_TRANSPORT, SPECCLIENT_MODEL,
    SPECCLIENT_CACHE, SPECCLIENT_REDIS_URL.
    """
    settings = state.settings()
    every = _flat(settings)
    found = [row for row in every if not keys or any(_under(row[0], key) for key in keys)]
    if not found:
        known = ", ".join(dict.fromkeys(key.partition(".")[0] for key, _, _ in every))
        raise click.UsageError(f"no setting is named {' or '.join(keys)}; the settings are {known}.")
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


def _flat(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return (dotted name, plain value, source) of every setting."""
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
    """Return a value for JSON: of a secret only whether it is set, URLs without their password."""
    if key.rpartition(".")[2] in _SECRET or isinstance(value, SecretStr):
        return "set" if value else "not set"
    if key.rpartition(".")[2] in _URLS and isinstance(value, str):
        return mask_url(value)
    if key == "cache.store" and isinstance(value, str):
        return mask_url_passwords(value)
    if key == "ledger":
        from specclient.ledger.ledger import Ledger  # noqa: PLC0415 - imports the database toolkit

        return Ledger(value).location
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {name: "set" if isinstance(each, SecretStr) else each for name, each in value.items()}
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
