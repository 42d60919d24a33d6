"""Turn the keywords of a call into a frozen Request, refusing those that no endpoint knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from pydantic import BaseModel

from specclient.stream import AsyncStream, Stream
from specclient.types.params import CallOptions, NotGiven
from specclient.types.request import Operation, Options, Request

T = TypeVar("T")
P = ParamSpec("P")

_OURS = frozenset(CallOptions.__annotations__)


class Runner(Protocol):
    """How synchronous resources reach the event loop; :mod:`specclient.sync` has the one that is used."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, wait, and return the result or raise its exception."""
        ...

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Call, and hand the chunks of the resulting stream across."""
        ...


def build_request(
    operation: Operation, model: str, given: Mapping[str, Any], *, known: Iterable[str], stream: bool
) -> Request:
    """Return the request that keywords stand for.

    Args:
        given: everything but ``model`` and ``stream``; values that are not given are dropped.
        known: the names the operation takes.

    Raises:
        TypeError: for an unknown keyword, as the OpenAI client does; says how to send it all the same.
    """
    unknown = given.keys() - set(known) - _OURS
    if unknown:
        name = sorted(unknown)[0]
        raise TypeError(
            f"create() got an unexpected keyword argument {name!r}; "
            f"to send a parameter this client does not know, use extra_body={{{name!r}: …}}"
        )
    if not isinstance(model, str) or not model:
        raise TypeError(f"model is {model!r}; it must be a model's name, such as 'gpt-4.1' or 'local/demo'")
    params = {k: _plain(v) for k, v in given.items() if k not in _OURS and not isinstance(v, NotGiven)}
    options = Options(
        headers=given.get("extra_headers") or {},
        query=given.get("extra_query") or {},
        body=given.get("extra_body") or {},
        timeout=None if isinstance(given.get("timeout"), NotGiven) else given.get("timeout"),
        tags=given.get("tags") or {},
    )
    return Request(operation, model, params, stream=stream, policy=given.get("policy"), options=options)


def _plain(value: Any) -> Any:
    """Make a list of an iterable that JSON cannot hold (``messages`` may be any iterable)."""
    if isinstance(value, str | bytes | Mapping | list | BaseModel) or not isinstance(value, Iterable):
        return value
    return list(value)
