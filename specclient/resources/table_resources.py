"""Resource classes made from the endpoint table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specclient.resources import composite_methods
from specclient.resources.base import Resource, build_request
from specclient.resources.file_inputs import aread_files, read_files
from specclient.resources.signatures import LazySignature, bind_arguments, doc_of, signature_of
from specclient.resources.sockets.connect import connect_method
from specclient.resources.table import index
from specclient.resources.table.rows import Row, method_of
from specclient.resources.table.sockets import socket_of
from specclient.resources.traced_methods import traceable
from specclient.types.binary import HttpxBinaryResponseContent
from specclient.types.params import NOT_GIVEN, is_given
from specclient.types.request import Request


def table_resource(name: str, *, is_async: bool) -> type[Resource]:
    """Return the class of a resource whose methods all come from the table.

    Args:
        name: the resource's name on a client: ``vector_stores.files``.
        is_async: whether its methods are coroutines.

    Raises:
        KeyError: the table has no such resource.
    """
    return _resource(name, is_async)


def sibling_of(resource: Resource, name: str) -> Any:
    """Return another resource of the same client.

    Args:
        resource: a resource of the client.
        name: the other resource's name on the client: ``files``.
    """
    return _resource(name, resource.is_async)(resource.caller)


@functools.cache
def _resource(name: str, is_async: bool) -> type[Resource]:
    if not index.rows_of(name) and not index.children_of(name) and socket_of(name) is None:
        raise KeyError(name)
    title = "".join(part.title() for part in name.rpartition(".")[2].split("_"))
    made = type(f"Async{title}" if is_async else title, (Resource,), {"__doc__": f"``client.{name}``."})
    made.__module__ = __name__
    return with_table_methods(name, is_async=is_async)(made)


def with_table_methods(name: str, *, is_async: bool) -> Callable[[type[Resource]], type[Resource]]:
    """Return a class decorator that adds a resource's methods from the table and from ``composite_methods``.

    Attributes that the class defines itself are kept.

    Args:
        name: the resource's name on a client: ``chat.completions``.
        is_async: whether the methods are coroutines.
    """

    def add(cls: type[Resource]) -> type[Resource]:
        own = frozenset(vars(cls))

        cls.is_async, cls.resource_name = is_async, name
        for short, row in index.rows_of(name).items():
            if short not in own:
                _attach(cls, short, _method(row, is_async))
        for short, flow in composite_methods.composite_methods_of(name).items():
            if short not in own:
                _attach(cls, short, composite_methods.bind_method(flow, is_async=is_async))
        if (socket := socket_of(name)) is not None and "connect" not in own:
            _attach(cls, "connect", connect_method(socket))
        for child in index.children_of(name):
            if child not in own:
                _attach(cls, child, _child(f"{name}.{child}", is_async))
        return cls

    return add


def _attach(cls: type[Resource], name: str, found: Any) -> None:
    setattr(cls, name, found)
    if isinstance(found, functools.cached_property):
        found.__set_name__(cls, name)
    else:
        found.__name__, found.__qualname__, found.__module__ = name, f"{cls.__qualname__}.{name}", __name__


def _child(name: str, is_async: bool) -> functools.cached_property[Resource]:
    def child(self: Resource) -> Resource:
        return _resource(name, is_async)(self.caller)

    child.__doc__ = f"``client.{name}``."
    return functools.cached_property(child)


def _method(row: Row, is_async: bool) -> Any:
    """Return the method that a row of the table describes."""
    method: Any
    if row.page:

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self.caller.page(request_of(row, bind_arguments(row, args, kwargs)))

    elif is_async:

        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = await aread_files(bind_arguments(row, args, kwargs), row.files)
            return await self.caller.call(request_of(row, given), _into(row))

    else:

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = read_files(bind_arguments(row, args, kwargs), row.files)
            return self.caller.call(request_of(row, given), _into(row))

    method.__signature__ = LazySignature(lambda: signature_of(row))
    method.__doc__ = doc_of(row)
    method.__name__ = row.name.rpartition(".")[2]
    return traceable(method)


def _into(row: Row) -> Callable[[Any], Any] | None:
    return _binary if row.returns == "bytes" else None


def _binary(reply: Any) -> HttpxBinaryResponseContent:
    return HttpxBinaryResponseContent(reply.response)


def request_of(row: Row, given: dict[str, Any]) -> Request:
    """Return the request for a call's arguments.

    Args:
        row: the method's row in the table.
        given: the arguments by name.

    Raises:
        ValueError: a path argument is empty or a dot segment.
    """
    places = {name: given.pop(name) for name in row.places}
    for name, value in places.items():
        if not value:
            raise ValueError(f"Expected a non-empty value for `{name}` but received {value!r}")
        if value in (".", ".."):
            raise ValueError(f"{name} is {value!r}, which is a dot-segment of a path, not allowed there")
    headers: dict[str, Any] = {}
    for name, header in row.in_headers.items():
        value = given.pop(name, NOT_GIVEN)
        if is_given(value):
            headers[header] = value if isinstance(value, str) else ",".join(map(str, value))
    if headers:
        given["extra_headers"] = {**headers, **(given.get("extra_headers") or {})}
    method = method_of(row, _gives(row, given))
    if (
        row.files
        and row.form == "with files"
        and not any(_is_given(given, name) and given[name] != [] for name in row.files)
    ):
        method = replace(method, files=frozenset())
    for name, renames in row.renames.items():
        if name in given:
            given[name] = _renamed(given[name], renames)
    held = {name: given.pop(name) for name in row.files if _is_given(given, name)}
    request = build_request(method, given, path_params={name: str(value) for name, value in places.items()})
    request = replace(request, params={**request.params, **held}, stream=request.stream or row.streams)
    return composite_methods.REQUEST_SHAPERS.get(row.name, _unchanged)(request)


def _unchanged(request: Request) -> Request:
    return request


def _is_given(given: Mapping[str, Any], name: str) -> bool:
    return is_given(given.get(name, NOT_GIVEN))


def _gives(row: Row, given: Mapping[str, Any]) -> str:
    if row.returns_by is None:
        return row.returns
    name, others = row.returns_by
    value = given.get(name)
    return others.get(value, row.returns) if isinstance(value, str) else row.returns


def _renamed(value: Any, renames: Mapping[str, str]) -> Any:
    """Return a JSON value with the keys of its mappings renamed."""
    if isinstance(value, Mapping):
        return {renames.get(key, key): _renamed(inner, renames) for key, inner in value.items()}
    return [_renamed(inner, renames) for inner in value] if isinstance(value, list) else value
