"""The results of probes, saved in a JSON file of the user and read back as capabilities.

The file is ``$SPECCLIENT_PROBES`` (``off`` for none), otherwise ``probes.json`` in the user's data folder. It
contains URLs, model names and outcomes, but no keys, prompts or responses.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from specclient.errors import ConfigurationError
from specclient.runtime.folders import user_folder, write_atomically
from specclient.types.capabilities import Capabilities

if sys.platform != "win32":
    import fcntl

OFF = "off"

#: Capabilities by :func:`key_of` the base URL, then by model.
ProbedCapabilities = Mapping[str, Mapping[str, Capabilities]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """The saved result of one probe.

    Attributes:
        at: its time, with the time zone.
        outcomes: the outcome of each check, as text.
        capabilities: the fields of :class:`Capabilities` that it found.
    """

    at: datetime
    outcomes: Mapping[str, str]
    capabilities: Mapping[str, Any]


def probe_file(env: Mapping[str, str]) -> Path | None:
    """Return the path of the file, or None if results are not saved."""
    named = env.get("SPECCLIENT_PROBES")
    if named:
        return None if named.strip().lower() == OFF else Path(named).expanduser()
    return user_folder("data") / "probes.json"


def read_probes(env: Mapping[str, str]) -> ProbedCapabilities:
    """Return all probed capabilities; empty if the file is missing or unreadable."""
    path = probe_file(env)
    if path is None:
        return {}
    try:
        seen = path.stat()
    except OSError:
        return {}
    return _capabilities(path, seen.st_mtime_ns, seen.st_size)


def read_probe(env: Mapping[str, str], base_url: str, model: str) -> ProbeRecord | None:
    """Return the saved result of one model, or None."""
    path = probe_file(env)
    row = _rows(path).get(key_of(base_url), {}).get(model) if path else None
    return None if row is None else _probed(row)


def write_probe(env: Mapping[str, str], base_url: str, model: str, found: ProbeRecord) -> Path | None:
    """Save a result, replacing an earlier one. Returns the file's path, or None if results are not saved.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    path = probe_file(env)
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked_folder(path.parent):
            rows = {url: dict(models) for url, models in _rows(path).items()}
            rows.setdefault(key_of(base_url), {})[model] = {**asdict(found), "at": found.at.isoformat()}
            write_atomically(path, json.dumps(rows, indent=1, sort_keys=True))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror or error}; name another file in SPECCLIENT_PROBES, or say "
            "'off' there"
        ) from None
    return path


def key_of(base_url: str) -> str:
    """Return the key of an endpoint in the file: its URL without the query, which may contain a secret."""
    return base_url.partition("?")[0].rstrip("/")


def _rows(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the file's valid rows."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    return {url: models for url, models in read.items() if isinstance(models, dict)}


@functools.lru_cache(maxsize=4)
def _capabilities(path: Path, _modified: int, _size: int) -> ProbedCapabilities:
    """Return the file's capabilities. Modification time and size are part of the cache key."""
    return {
        url: {model: _read(probed.capabilities) for model, row in models.items() if (probed := _probed(row))}
        for url, models in _rows(path).items()
    }


def _probed(row: Any) -> ProbeRecord | None:
    """Return a row of the file as a record, or None if it is invalid."""
    with suppress(TypeError, ValueError, KeyError):
        at = datetime.fromisoformat(row["at"])
        outcomes = {str(name): str(outcome) for name, outcome in row["outcomes"].items()}
        return ProbeRecord(at=at, outcomes=outcomes, capabilities=dict(row["capabilities"]))
    return None


def _read(fields: Mapping[str, Any]) -> Capabilities:
    """Return the capabilities in a row; unknown ones if a value has the wrong type."""
    import pydantic  # noqa: PLC0415

    with suppress(pydantic.ValidationError):
        return pydantic.TypeAdapter(Capabilities).validate_python(dict(fields))
    return Capabilities()


@contextmanager
def _locked_folder(user_folder: Path) -> Iterator[None]:
    """Lock the folder against other writers, if the system supports it, so that no result is lost."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(user_folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # network file systems may not support locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
