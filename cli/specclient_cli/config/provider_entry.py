"""Adds a server to ``specclient.toml`` as a provider. The rest of the file is not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.config import FILE_NAME
from specclient.errors import ConfigurationError
from specclient.providers import PRESETS
from specclient.providers.custom import Provider
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient_cli.common.state import State
from specclient_cli.config.toml_file import replace_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def register(
    state: State,
    name: str,
    *,
    url: str,
    metrics: bool | str,
    model: str,
    like: str,
    key_env: str | None = None,
) -> dict[str, str]:
    """Add ``[providers.NAME]`` to the configuration in use, and its route to the candidates.

    Args:
        state: selects the file; without one, ./specclient.toml is created.
        name: the provider's name.
        url: its base URL.
        metrics: whether its counters are at ``/metrics``, or their URL.
        model: the model's name in requests.
        like: the preset whose capabilities are written.
        key_env: environment variable of its key.

    Returns:
        ``route`` and ``file``.

    Raises:
        ConfigurationError: the name or URL is invalid, the name belongs to another server, or the file cannot
            be read or written.
    """
    import tomlkit  # noqa: PLC0415 - used only here

    Provider(name=name, base_url=url, metrics=metrics)
    settings = state.settings()
    taken = settings.providers.get(name)
    if taken is not None and taken.base_url not in (None, url):
        raise ConfigurationError(
            f"[providers.{name}] of {settings.source} is another server; choose another name, or remove it."
        )
    file = settings.source or Path(state.config or FILE_NAME).expanduser()
    text = file.read_text(encoding="utf-8") if settings.source else ""
    document = tomlkit.parse(text)
    table: dict[str, Any] = {"base_url": url, "dialect": "openai", "models": [model], "metrics": metrics}
    if key_env:
        table["api_key_env"] = key_env
    table["capabilities"] = _capability_table(PRESETS[like].capabilities)
    _merge(document, name, table)
    route = f"{name}/{model}"
    _write(file, _with_candidate(document, settings.candidates, route))
    return {"route": route, "file": str(file)}


def _capability_table(known: Capabilities) -> dict[str, Any]:
    """Return the known capabilities of a server as values of a table."""
    every = {each.name: getattr(known, each.name) for each in fields(known)}
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        for key, value in every.items()
        if value is not None and value != getattr(UNKNOWN_CAPABILITIES, key)
    }


def _merge(document: TOMLDocument, name: str, table: dict[str, Any]) -> None:
    """Set keys of a provider's table. Its other keys and models stay."""
    import tomlkit  # noqa: PLC0415

    providers = document.setdefault("providers", tomlkit.table(is_super_table=True))
    own = providers.setdefault(name, tomlkit.table())
    models = [*own.get("models", [])]
    for key, value in table.items():
        own[key] = value
    own["models"] = [*models, *(each for each in table["models"] if each not in models)]


def _with_candidate(document: TOMLDocument, before: Sequence[str], route: str) -> str:
    """Return the file's text with a route appended to the candidates in effect."""
    import tomlkit  # noqa: PLC0415

    if route in before:
        return tomlkit.dumps(document)
    if "candidates" not in document:
        return tomlkit.dumps({"candidates": [*before, route]}) + tomlkit.dumps(document)
    document["candidates"].append(route)
    return tomlkit.dumps(document)


def _write(file: Path, text: str) -> None:
    """Replace the file, or the target of a link, and keep its permissions."""
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text)
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror or error}") from None
