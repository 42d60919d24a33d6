"""Lookup of table rows by resource; tables are imported on first use."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping

from specclient.openai_api import endpoints
from specclient.resources.table.rows import Row, row_of
from specclient.resources.table.sockets import socket_resources


def rows_of(resource: str) -> Mapping[str, Row]:
    """Return the rows of a resource by method name; empty for an unknown resource."""
    return _by_resource(resource.partition(".")[0]).get(resource, {})


def children_of(resource: str) -> frozenset[str]:
    """Return the names of the direct subresources of ``resource``."""
    prefix = f"{resource}."
    names = [*_by_resource(resource.partition(".")[0]), *socket_resources()]
    return frozenset(name[len(prefix) :].partition(".")[0] for name in names if name.startswith(prefix))


def roots() -> frozenset[str]:
    """Return the names of a client's resources."""
    return frozenset(endpoints.ROOTS)


@functools.cache
def _by_resource(root: str) -> Mapping[str, Mapping[str, Row]]:
    """Return the rows of a client's resource and its subresources, by resource and method name."""
    found: dict[str, dict[str, Row]] = {}
    if root in endpoints.ROOTS:
        table = importlib.import_module(f"{endpoints.__name__}.{root}").ENDPOINTS
        for name, fields in table.items():
            resource, _, short = name.rpartition(".")
            found.setdefault(resource, {})[short] = row_of(name, fields)
    return found
