"""Turn what the generated table tells of an endpoint into a Row: where it goes, what it takes and gives."""

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
    """One endpoint, as https://platform.openai.com/docs/api-reference has it.

    Attributes:
        name: where it is on a client: ``files.list``.
        verb, path: of HTTP; the path's placeholders are arguments, the last one positional.
        params: the keywords it takes, in order, beside those of every call.
        required: those of ``params`` that must be given.
        either: alternatives, one of which must be given whole beside ``required``.
        gives: the name of what its answer becomes, of what it lists where ``page`` is set.
        gives_by: a parameter, and what the answer becomes for a value of it where not ``gives``.
        page: how it lists; empty where it does not.
        event: the name of what each event becomes with ``stream=True``; empty where it does not stream.
        streams: whether it streams always, and not with ``stream=True`` only.
        query, files: those of ``params`` that go into the query of a POST, that hold files.
        form: whether the body is multipart always, or only where a file is given.
        headers: sent with it.
        in_headers: those of ``params`` that go into a header, by its name.
        renames: names inside a parameter that are other ones on the wire, by the parameter's name.
        metered: whether a model works on it, and is paid for it.
        deprecated: why it should not be used; empty where it may be.
    """

    name: str
    verb: str
    path: str
    params: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    either: tuple[tuple[str, ...], ...] = ()
    gives: str = ""
    gives_by: tuple[str, Mapping[str, str]] | None = None
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


def row_of(name: str, told: Mapping[str, Any]) -> Row:
    """Return the row of an endpoint.

    Args:
        name: where it is on a client.
        told: what the generated table has for it, with our own part over it. Names stand in texts, those that
            must be given with a ``!``: ``"file! purpose! expires_after"``; what is not told has its default.
    """
    told = {**told, **overlay.INSTEAD.get(name, {})}
    verb, _, path = told["route"].partition(" ")
    names = told.get("params", "").split()
    return Row(
        name=name,
        verb=verb,
        path=path,
        params=tuple(one.rstrip("!") for one in names),
        required=frozenset(one[:-1] for one in names if one.endswith("!")),
        either=tuple(tuple(names.split()) for names in told.get("either", ())),
        gives=told.get("gives", ""),
        gives_by=next(iter(told.get("gives_by", {}).items()), None),
        page=told.get("page", ""),
        event=told.get("event", ""),
        streams=told.get("streams", False),
        query=frozenset(told.get("query", "").split()),
        files=frozenset(told.get("files", "").split()),
        form=told.get("form", "always"),
        headers=told.get("headers", {}),
        in_headers=told.get("in_headers", {}),
        renames=told.get("renames", {}),
        metered=name in overlay.METERED,
        deprecated=overlay.warning_of(name) if told.get("deprecated") else "",
    )


@functools.cache
def method_of(one: Row, gives: str) -> ApiMethod:
    """Return the method that a row is.

    Args:
        gives: the row's own, or what its ``gives_by`` has for a call.
    """
    return ApiMethod(
        name=one.name,
        verb=one.verb,
        path=one.path,
        params=frozenset(one.params) - one.in_headers.keys(),
        query=one.query,
        files=one.files,
        response_type=_PLAIN.get(gives, gives),
        page=_page_kind(one.page) if one.page else None,
        event_type=one.event or None,
        metered=one.metered,
        headers=one.headers,
    )


def _page_kind(name: str) -> PageClasses:
    with import_lock:
        from specclient.types.pages import PAGE_CLASSES  # noqa: PLC0415 - only who lists pays for it

    return PAGE_CLASSES[name]
