"""Turn what a caller asked for, and what is known of the endpoint, into the strategy that is played."""

from __future__ import annotations

from typing import get_args

from specclient.call.strategies import prediction
from specclient.call.strategies.context import StrategyContext, request_param, unsupported_parameter
from specclient.call.strategies.remote.eligibility import ineligibility as hindrance_of
from specclient.errors import ConfigurationError
from specclient.types.request import Request
from specclient.types.strategy import Strategy, StrategyKind


def requested_strategy(request: Request) -> Strategy:
    """Return the strategy that a request asks for.

    Raises:
        ConfigurationError: what it gives is none.
        UnsupportedParameterError: its method has none.
    """
    wanted = request.strategy
    if request.operation not in ("chat", "completion"):
        raise unsupported_parameter(
            f"{request.method.name} takes no strategy; chat.completions.create and completions.create do",
            "strategy",
        )
    if isinstance(wanted, Strategy):
        return wanted
    if isinstance(wanted, str) and wanted in get_args(StrategyKind):
        return Strategy(kind=wanted)  # type: ignore[arg-type]  # checked above
    raise ConfigurationError(
        f"strategy is {wanted!r}; it must be one of {', '.join(get_args(StrategyKind))}, "
        "or a specclient.Strategy"
    )


def choose_kind(table: StrategyContext) -> StrategyKind:
    """Return the kind that is played, and note why.

    ``auto`` takes what the endpoint is *known* to expose and the request allows, best first: ``remote``,
    which is exact and needs a draft; then ``prediction``. It never takes ``prefill``, which the target does
    not verify; nor a draft for an engine in this process, which has no way to shorten and drafts by itself.
    """
    kind = table.strategy.kind
    if kind != "auto":
        table.note(f"strategy {kind!r} asked for")
        return kind
    drafted = table.draft is not None and table.endpoint is not None
    hindrance = hindrance_of(table)
    if drafted and hindrance is None:
        table.note(f"auto: {table.where} scores prompts, so its tokens verify the draft's")
        return "remote"
    predicted = any(request_param(table.request, name) is not None for name in ("prediction", "speculation"))
    if (predicted or drafted) and prediction.can_predict(table):
        table.note(f"auto: {table.where} verifies predictions")
        return "prediction"
    why = "neither draft nor prediction was given"
    if table.draft is not None and not drafted:
        why = f"{table.where} drafts by itself"
    if drafted or predicted:
        why = hindrance[0] if hindrance and drafted else f"{table.where} is not known to verify predictions"
    table.note(f"auto: sent as it is, {why}")
    return "direct"
