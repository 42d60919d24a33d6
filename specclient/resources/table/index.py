"""Turn the name of a resource into its rows, reading no table before it is asked for."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Final

from specclient.resources.table.rows import Row

#: The tables, by the resource below which theirs are; the longest name that fits counts.
_TABLES: Final[Mapping[str, str]] = {
    "admin": "admin_organization",
    "admin.organization.projects": "admin_projects",
    "audio": "media",
    "beta": "beta",
    "beta.agents": "beta_agents",
    "chat": "chat",
    "containers": "files",
    "files": "files",
    "images": "media",
    "live": "media",
    "realtime": "media",
    "skills": "files",
    "uploads": "files",
    "vector_stores": "files",
    "videos": "media",
}
_REST = "models"


def rows_of(resource: str) -> Mapping[str, Row]:
    """Return the methods of a resource by their names; none where the table has none."""
    return _by_resource(_table_of(resource)).get(resource, {})


def children_of(resource: str) -> frozenset[str]:
    """Return the names of the resources that stand directly in ``resource``."""
    prefix = f"{resource}."
    tables = {_table_of(resource), *(t for name, t in _TABLES.items() if name.startswith(prefix))}
    names = [name for table in tables for name in _by_resource(table)]
    return frozenset(name[len(prefix) :].partition(".")[0] for name in names if name.startswith(prefix))


def roots() -> frozenset[str]:
    """Return the names of the resources that stand on a client."""
    tables = {_REST, *_TABLES.values()}
    return frozenset(name.partition(".")[0] for table in tables for name in _by_resource(table))


def _table_of(resource: str) -> str:
    name = resource
    while name and name not in _TABLES:
        name = name.rpartition(".")[0]
    return _TABLES.get(name, _REST)


@functools.cache
def _by_resource(table: str) -> Mapping[str, Mapping[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in importlib.import_module(f"specclient.resources.table.{table}").ROWS:
        resource, _, name = row.name.rpartition(".")
        found.setdefault(resource, {})[name] = row
    return found
