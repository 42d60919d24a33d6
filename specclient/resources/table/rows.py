"""Turn one line about an endpoint into a Row: where it is sent, what it takes, what it gives."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

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


def row(
    name: str,
    route: str,
    params: str = "",
    gives: str = "",
    *,
    query: str = "",
    files: str = "",
    either: tuple[str, ...] = (),
    accept: str = "",
    **more: Any,
) -> Row:
    """Return a row whose name, path and type are relative to the :func:`group` it stands in.

    Args:
        route: the verb, and what follows the group's path: ``"GET /{file_id}"``.
        params: names in order, those that must be given with a ``!``: ``"file! purpose! expires_after"``.
        gives: ``"FileObject"``; ``"CursorPage[FileObject]"`` for a list; ``"bytes"``; nothing for nothing.
        query, files, either: names, as in :class:`Row`.
        accept: the media type asked for, where it is not what ``gives`` implies.
        more: further attributes of :class:`Row`.
    """
    verb, _, path = route.partition(" ")
    page, _, item = gives.rstrip("]").rpartition("[")
    names = params.split()
    accept = accept or {"": "*/*", "bytes": "application/binary"}.get(gives, "")
    return Row(
        name=name,
        verb=verb,
        path=path,
        params=tuple(name.rstrip("!") for name in names),
        required=frozenset(name[:-1] for name in names if name.endswith("!")),
        either=tuple(tuple(names.split()) for names in either),
        gives=item,
        page=page,
        query=frozenset(query.split()),
        files=frozenset(files.split()),
        headers={"Accept": accept} if accept else {},
        **more,
    )


def group(
    name: str, path: str, *rows: Row, types: str = "", beta: str = "", deprecated: str = ""
) -> tuple[Row, ...]:
    """Return rows with what they have in common filled in.

    Args:
        name: of the resource they are methods of.
        path: the beginning of every path.
        types: the package below ``specclient.types`` of what they give; a name with a dot stands for itself,
            one that begins with a dot for a class of ``specclient.types`` itself.
        beta: the version that the ``OpenAI-Beta`` header names.
        deprecated: of each.
    """
    return tuple(
        replace(
            one,
            name=f"{name}.{one.name}",
            path=path + one.path,
            gives=_absolute(one.gives, types),
            headers={**one.headers, "OpenAI-Beta": beta} if beta else one.headers,
            deprecated=one.deprecated or deprecated,
        )
        for one in rows
    )


def _absolute(name: str, package: str) -> str:
    if name.startswith("."):
        return name[1:]
    return name if name in _PLAIN or "." in name or not package else f"{package}.{name}"


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
        gives=_PLAIN.get(gives, gives),
        page=_page_kind(one.page) if one.page else None,
        event=one.event or None,
        metered=one.metered,
        headers=one.headers,
    )


def _page_kind(name: str) -> PageClasses:
    with import_lock:
        from specclient.types.pages import PAGE_CLASSES  # noqa: PLC0415 - only who lists pays for it

    return PAGE_CLASSES[name]
