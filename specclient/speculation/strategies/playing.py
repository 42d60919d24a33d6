"""Turn the kind of a strategy into its play."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from specclient.speculation.strategies import prediction, prefill, remote
from specclient.speculation.strategies.base import Table
from specclient.types.strategy import Kind


class _Play(NamedTuple):
    whole: Callable[[Table], Awaitable[Any]]
    stream: Callable[[Table], AsyncGenerator[list[Any], None]]


_PLAYS: Mapping[Kind, _Play] = {
    "prediction": _Play(prediction.whole, prediction.stream),
    "prefill": _Play(prefill.whole, prefill.stream),
    "remote": _Play(remote.whole, remote.stream),
}


async def whole(kind: Kind, table: Table) -> Any:
    """Serve a request whole by a strategy; raises what refuses it, or what the target's calls raise."""
    return await _PLAYS[kind].whole(table)


def stream(kind: Kind, table: Table) -> AsyncGenerator[list[Any], None]:
    """Serve a request in chunks by a strategy; raises as :func:`whole`, while iterating."""
    return _PLAYS[kind].stream(table)
