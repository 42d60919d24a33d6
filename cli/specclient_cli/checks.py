"""Turn configuration, ledger, keys and engine into findings: fine, worth a note, or a problem."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specclient.client import AsyncOpenAI
from specclient.config import Settings
from specclient.costs.ledger import Ledger
from specclient.errors import ConfigurationError, OpenAIError
from specclient.providers import Endpoint
from specclient_cli.failures import ENGINE_MODULES
from specclient_cli.state import State

LOCAL = "local"
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing.

    Attributes:
        level: ``problem`` where the configuration relies on what is not there.
    """

    about: str
    level: Literal["ok", "note", "problem"]
    text: str


def run(state: State) -> list[Finding]:
    """Look at everything; sends nothing and writes nothing."""
    try:
        settings = state.settings()
        client = state.parts(settings)
    except ConfigurationError as error:
        return [Finding("file", "problem", str(error))]
    read = f"read {settings.source}" if settings.source else "no file; every setting is the default"
    return [
        Finding("file", "ok", read),
        _ledger(settings),
        *_engine(settings),
        *_checkpoints(settings),
        *_providers(settings, client),
    ]


def _ledger(settings: Settings) -> Finding:
    try:
        ledger = Ledger(settings.ledger)
        found = ledger.rows(limit=1)
    except OpenAIError as error:
        return Finding("ledger", "problem", str(error))
    if ledger.location == "off":
        return Finding("ledger", "note", "off: calls are not kept")
    return Finding("ledger", "ok", f"{ledger.location}{'' if found else ' (no calls yet)'}")


def _used(settings: Settings) -> set[str]:
    """Return the providers that the user's own configuration relies on; package defaults do not count."""
    names = {settings.default_model, *settings.providers}
    if "candidates" in settings.model_fields_set:
        names |= set(settings.candidates)
    return {name.partition("/")[0] for name in names}


def _engine(settings: Settings) -> Iterator[Finding]:
    absent = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if not absent:
        yield Finding("local engine", "ok", "installed")
    else:
        level: Literal["note", "problem"] = "problem" if LOCAL in _used(settings) else "note"
        yield Finding(
            "local engine", level, f"{', '.join(absent)} not installed: pip install 'specclient[local]'"
        )


def _checkpoints(settings: Settings) -> Iterator[Finding]:
    for name, model in settings.local.models.items():
        drafts = (model.draft,) if isinstance(model.draft, str) else model.draft or ()
        for role, where in (("path", model.path), *(("draft", draft) for draft in drafts)):
            if (Path(where).expanduser() / "config.json").is_file():
                continue
            about = f"local/{name}"
            if _HUB_ID.fullmatch(where) and not Path(where).exists():
                yield Finding(about, "note", f"{role} {where!r} is taken as a hub id; not looked up")
            else:
                yield Finding(
                    about, "problem", f"{role} {where!r} is no checkpoint folder: no config.json in it"
                )


def _providers(settings: Settings, client: AsyncOpenAI) -> Iterator[Finding]:
    used, places = _used(settings), client.pipeline.router.places
    mentioned = used | {name.partition("/")[0] for name in settings.candidates} | {settings.default_provider}
    for name in sorted(mentioned - {LOCAL, "auto"}):
        try:
            place = places.get(name)
        except OpenAIError as error:
            yield Finding(name, "problem", str(error))
            continue
        if not isinstance(place, Endpoint):
            continue
        if (lacking := place.lacks) is not None:
            level: Literal["note", "problem"] = "problem" if name in used else "note"
            yield Finding(name, level, lacking)
        else:
            yield Finding(name, "ok", f"{place.address}, key {'set' if place.key else 'not needed'}")
