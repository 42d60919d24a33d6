"""Checks of the configuration, the ledger, the keys and the engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specclient_local.embedding.layout_reader import is_embedding_checkpoint, read_layout
from specclient_local.loading.configured_embeddings import read_configured_embeddings
from specclient_local.loading.configured_models import read_configured_models
from specclient_local.managed.managed_models import read_managed_models
from specclient_local.model.checkpoint_files import is_gguf, read_json
from specclient_local.model.config import local_folder, read_config

from specclient.client.async_client import AsyncOpenAI
from specclient.config import Settings
from specclient.errors import CheckpointError, ConfigurationError, OpenAIError
from specclient.ledger.ledger import Ledger
from specclient.providers import Endpoint
from specclient.types.model_kind import EMBEDDING_KIND
from specclient_cli.common.errors import ENGINE_MODULES
from specclient_cli.common.fleet_settings import fleet_of_settings
from specclient_cli.common.state import State

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        about: the part that was checked.
        level: ``problem`` if the configuration relies on something that is missing.
        text: the finding.
    """

    about: str
    level: Literal["ok", "note", "problem"]
    text: str


def run(state: State) -> list[CheckResult]:
    """Run all checks; sends no request and writes no file."""
    try:
        settings = state.settings()
        client = state.async_client(settings)
    except ConfigurationError as error:
        return [CheckResult("file", "problem", str(error))]
    read = f"read {settings.source}" if settings.source else "no file; every setting is the default"
    return [
        CheckResult("file", "ok", read),
        _ledger(settings),
        *_engine(settings),
        *_local_models(settings),
        *_checkpoints(settings),
        *_fleets(settings),
        *_providers(settings, client),
    ]


def _ledger(settings: Settings) -> CheckResult:
    try:
        ledger = Ledger(settings.ledger)
        with closing(ledger):
            calls = ledger.rows(limit=1)
    except OpenAIError as error:
        return CheckResult("ledger", "problem", str(error))
    if ledger.location == "off":
        return CheckResult("ledger", "note", "off: calls are not recorded")
    return CheckResult("ledger", "ok", f"{ledger.location}{'' if calls else ' (no calls yet)'}")


def _used(settings: Settings) -> set[str]:
    """Return the providers that the user's configuration uses; defaults of the package do not count."""
    names = {settings.default_model, *settings.providers}
    if settings.judge is not None:
        names.add(settings.judge.model)
    if "candidates" in settings.model_fields_set:
        names |= set(settings.candidates)
    return {name.partition("/")[0] for name in names}


def _engine(settings: Settings) -> Iterator[CheckResult]:
    absent = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if not absent:
        yield CheckResult("local engine", "ok", "installed")
    else:
        level: Literal["note", "problem"] = "problem" if LOCAL in _used(settings) else "note"
        yield CheckResult(
            "local engine", level, f"{', '.join(absent)} not installed: pip install 'specclient[local]'"
        )


def _local_models(settings: Settings) -> Iterator[CheckResult]:
    """Check the values of the tables of local models; their folders are another check."""
    local = settings.local.model_dump()
    for name, table in local["models"].items():
        one = {**local, "models": {name: table}}
        try:
            read_managed_models(one, read_configured_models(one))
            read_configured_embeddings(one)
        except (CheckpointError, ConfigurationError) as error:
            yield CheckResult(f"local/{name}", "problem", str(error))


def _fleets(settings: Settings) -> Iterator[CheckResult]:
    for name, table in settings.fleets.items():
        try:
            fleet_of_settings(name, table)
        except (CheckpointError, ConfigurationError) as error:
            yield CheckResult(f"fleet {name}", "problem", str(error))


def _checkpoints(settings: Settings) -> Iterator[CheckResult]:
    for name, model in settings.local.models.items():
        extra = model.model_extra or {}
        about, heads, has_command = f"local/{name}", extra.get("heads"), bool(extra.get("command"))
        is_served = extra.get("engine", "own") != "own"
        named = [("path", model.path)]
        named += [("draft", each) for each in _several(model.draft)]
        named += [("heads", each) for each in _several(heads)]
        for role, where in named:
            if (role == "path" and where == "demo") or has_command:
                continue
            if is_served and _is_weights_file(where):  # the server may know more formats of such files
                continue
            try:
                folder = local_folder(where)
            except CheckpointError as error:
                yield CheckResult(about, "problem", f"{role}: {error}")
                continue
            if folder is None:
                yield CheckResult(about, "note", f"{role} {where!r} is a hub id, which is not checked")
            elif model.kind == EMBEDDING_KIND:
                try:
                    read_layout(folder)
                except CheckpointError as error:
                    yield CheckResult(about, "problem", str(error))
            elif is_gguf(folder):
                try:
                    read_config(folder)
                except (CheckpointError, ConfigurationError) as error:
                    yield CheckResult(about, "problem", f"{role}: {error}")
            elif not (folder / "config.json").is_file():
                yield CheckResult(
                    about, "problem", f"{role} {where!r} is not a checkpoint folder: it has no config.json"
                )


def _is_weights_file(where: str) -> bool:
    """Return whether a checkpoint is a file that llama.cpp reads."""
    return where.endswith(".gguf") and Path(where).expanduser().is_file()


def _several(value: Any) -> list[str]:
    """Return the checkpoints of a setting that takes one, several or none."""
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each is not None]


def check_checkpoints(model: str, draft: str | None) -> None:
    """Check that a model and its draft can be checkpoints, without a request to the hub.

    Raises:
        ConfigurationError: one cannot; the message names it and what is allowed.
    """
    for name in (model, draft):
        if name is None or (name == "demo" and name is model):
            continue
        try:
            folder = local_folder(name)
            if folder is not None and is_embedding_checkpoint(folder):
                read_layout(folder)
            elif folder is not None and is_gguf(folder):
                read_config(folder)
            elif folder is not None:
                read_json(folder / "config.json")
        except CheckpointError as error:
            raise ConfigurationError(str(error)) from None


def _providers(settings: Settings, client: AsyncOpenAI) -> Iterator[CheckResult]:
    used, places = _used(settings), client.pipeline.destinations
    mentioned = used | {name.partition("/")[0] for name in settings.candidates} | {settings.default_provider}
    for name in sorted(mentioned - {LOCAL, "auto"}):
        try:
            place = places.get(name)
        except OpenAIError as error:
            yield CheckResult(name, "problem", str(error))
            continue
        if not isinstance(place, Endpoint):
            continue
        if (lacking := place.lacks) is not None:
            level: Literal["note", "problem"] = "problem" if name in used else "note"
            yield CheckResult(name, level, lacking)
        else:
            yield CheckResult(name, "ok", f"{place.address}, key {'set' if place.key else 'not needed'}")
