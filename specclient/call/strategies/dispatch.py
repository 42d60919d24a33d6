"""Turn the kind of a strategy into its play."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from specclient.call.strategies import prediction, prefill
from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.remote import loop
from specclient.types.strategy import StrategyKind


class _StrategyFunctions(NamedTuple):
    whole: Callable[[StrategyContext], Awaitable[Any]]
    stream: Callable[[StrategyContext], AsyncGenerator[list[Any], None]]


_PLAYS: Mapping[StrategyKind, _StrategyFunctions] = {
    "prediction": _StrategyFunctions(prediction.whole, prediction.stream),
    "prefill": _StrategyFunctions(prefill.whole, prefill.stream),
    "remote": _StrategyFunctions(loop.whole, loop.stream),
}


async def whole(kind: StrategyKind, table: StrategyContext) -> Any:
    """Serve a request whole by a strategy; raises what refuses it, or what the target's calls raise."""
    return await _PLAYS[kind].whole(table)


def stream(kind: StrategyKind, table: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Serve a request in chunks by a strategy; raises as :func:`whole`, while iterating."""
    return _PLAYS[kind].stream(table)
