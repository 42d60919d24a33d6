"""Reads the settings from arguments, the environment and the file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from specclient.config.invalid_setting import explain_invalid_setting
from specclient.config.settings import FILE_NAME, Settings
from specclient.errors import ConfigurationError
from specclient.runtime.folders import user_folder
from specclient.types.model_aliases import ModelAliases

#: Environment variables that override the file, with their settings; a dot separates table and setting.
ENVIRONMENT = {
    "SPECCLIENT_LEDGER": "ledger",
    "SPECCLIENT_LEDGER_DURABILITY": "ledger_durability",
    "SPECCLIENT_TRANSPORT": "transport",
    "SPECCLIENT_MODEL": "default_model",
    "SPECCLIENT_CACHE": "cache.store",
    "SPECCLIENT_REDIS_URL": "server.redis_url",
}


#: Settings that may be any text.
_PLAIN = {"ledger", "default_model"}


def search_path(env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[Path]:
    """Return the paths where the file is searched, in order."""
    env = os.environ if env is None else env
    if named := env.get("SPECCLIENT_CONFIG"):
        return [Path(named).expanduser()]
    return [(cwd or Path.cwd()) / FILE_NAME, user_folder("config") / FILE_NAME]


def load(
    path: str | Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    **arguments: Any,
) -> Settings:
    """Read the settings.

    Args:
        path: a file to read instead of searching; it must exist.
        env: the environment, ``os.environ`` by default.
        cwd: the working directory of the search; the current one by default.
        arguments: the caller's settings; None counts as not given.

    Raises:
        ConfigurationError: a file cannot be read or parsed, or a value is not allowed. The message names the
            file, the key, the value and the allowed values.
    """
    env = os.environ if env is None else env
    named = path is not None or "SPECCLIENT_CONFIG" in env
    places = [Path(path).expanduser()] if path is not None else search_path(env, cwd)
    source = next((p for p in places if p.is_file()), None)
    if source is None and named:
        raise ConfigurationError(
            f"no configuration file at {places[0]}; create one with `specclient config init` "
            "or unset SPECCLIENT_CONFIG"
        )
    values = _read(source) if source else {}
    values |= _from_environment(env, values)
    values |= {key: value for key, value in arguments.items() if value is not None}
    if values.keys() <= _PLAIN and all(isinstance(value, str) for value in values.values()):
        # These need no check, and building the validator takes long.
        return Settings.model_construct(**values, source=source)
    try:
        settings = Settings.model_validate({**values, "source": source})
        for policy in settings.policies.values():
            policy.policy()
        settings.budget_list()
        ModelAliases(settings.aliases)
    except pydantic.ValidationError as error:
        raise ConfigurationError(explain_invalid_setting(error, source)) from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None
    return settings


def _from_environment(env: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the environment; a table keeps its other ``values``."""
    settings: dict[str, Any] = {}
    for name, key in ENVIRONMENT.items():
        table, _, field = key.rpartition(".")
        if env.get(name) and not table:
            settings[key] = env[name]
        elif env.get(name) and isinstance(values.get(table, {}), dict):
            settings[table] = {**values.get(table, {}), field: env[name]}
    return settings


def _read(source: Path) -> dict[str, Any]:
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {source}: {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source} is not valid TOML: {error}") from None
