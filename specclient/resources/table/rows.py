"""Rows of the endpoint table, and their API methods."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from specclient.resources.table import overlay
from specclient.runtime.forks import import_lock
from specclient.types.api_method import ApiMethod

if TYPE_CHECKING:
    from specclient.types.pages import PageClasses

_PLACE = re.compile(r"\{(\w+)\}")
_PLAIN: Mapping[str, Any] = {"": None, "bytes": bytes, "str": str, "object": object}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One endpoint of https://platform.openai.com/docs/api-reference.

    Attributes:
        name: the method's path on a client: ``files.list``.
        verb, path: the HTTP method and path; the path's placeholders are arguments, the last one positional.
        params: the keyword arguments, in order, without those of every call.
        required: the names in ``params`` that must be given.
        either: sets of parameters; one set must be given completely, in addition to ``required``.
        returns: the name of the response type; if ``page`` is set, of the listed items' type.
        returns_by: a parameter, and the response types for those of its values that change it.
        page: the kind of page of a list method; empty otherwise.
        event: the name of the event type with ``stream=True``; empty if the method cannot stream.
        streams: whether the response is always streamed, not only with ``stream=True``.
        query, files: the names in ``params`` that go into the query of a POST, and those that hold files.
        form: whether the body is always multipart, or only if a file is given.
        headers: fixed request headers.
        in_headers: the header names of the parameters that are sent in a header, by parameter.
        renames: keys inside a parameter that have another name in the request, by parameter.
        metered: whether a model serves the call and the provider bills it.
        deprecated: the deprecation warning; empty if the method is not deprecated.
    """

    name: str
    verb: str
    path: str
    params: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    either: tuple[tuple[str, ...], ...] = ()
    returns: str = ""
    returns_by: tuple[str, Mapping[str, str]] | None = None
    page: str = ""
    event: str = ""
    streams: bool = False
    query: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    form: Literal["always", "with files"] = "always"
    headers: Mapping[str, str] = field(default_factory=dict)
    in_headers: Mapping[str, str] = field(default_factory=dict)
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    metered: bool = False
    deprecated: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The placeholders of the path, in order."""
        return tuple(_PLACE.findall(self.path))


def row_of(name: str, fields: Mapping[str, Any]) -> Row:
    """Return the row of an endpoint.

    Args:
        name: the method's path on a client.
        fields: the entry of the generated table; values in ``overlay.INSTEAD`` replace its values. Parameters
            are listed in one string, required ones with a ``!``: ``"file! purpose! expires_after"``. Missing
            values have their defaults.
    """
    fields = {**fields, **overlay.INSTEAD.get(name, {})}
    verb, _, path = fields["route"].partition(" ")
    names = fields.get("params", "").split()
    return Row(
        name=name,
        verb=verb,
        path=path,
        params=tuple(one.rstrip("!") for one in names),
        required=frozenset(one[:-1] for one in names if one.endswith("!")),
        either=tuple(tuple(names.split()) for names in fields.get("either", ())),
        returns=fields.get("returns", ""),
        returns_by=next(iter(fields.get("returns_by", {}).items()), None),
        page=fields.get("page", ""),
        event=fields.get("event", ""),
        streams=fields.get("streams", False),
        query=frozenset(fields.get("query", "").split()),
        files=frozenset(fields.get("files", "").split()),
        form=fields.get("form", "always"),
        headers=fields.get("headers", {}),
        in_headers=fields.get("in_headers", {}),
        renames=fields.get("renames", {}),
        metered=name in overlay.METERED,
        deprecated=overlay.warning_of(name) if fields.get("deprecated") else "",
    )


@functools.cache
def method_of(one: Row, response_type: str) -> ApiMethod:
    """Return the API method of a row.

    Args:
        response_type: its name: the row's ``returns``, or a value of its ``returns_by``.
    """
    return ApiMethod(
        name=one.name,
        verb=one.verb,
        path=one.path,
        params=frozenset(one.params) - one.in_headers.keys(),
        query=one.query,
        files=one.files,
        response_type=_PLAIN.get(response_type, response_type),
        page=_page_kind(one.page) if one.page else None,
        event_type=one.event or None,
        metered=one.metered,
        headers=one.headers,
    )


def _page_kind(name: str) -> PageClasses:
    with import_lock:
        from specclient.types.pages import PAGE_CLASSES  # noqa: PLC0415 - slow to import, needed only for lists

    return PAGE_CLASSES[name]
