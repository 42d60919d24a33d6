"""Selects the strategy of a call: the requested one, or for ``auto`` the best that the endpoint supports."""

from __future__ import annotations

from typing import get_args

from specclient.call.request_params import request_param
from specclient.call.strategies import prediction
from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.remote.eligibility import ineligibility
from specclient.errors import ConfigurationError
from specclient.types.request import Request
from specclient.types.strategy import Strategy, StrategyKind


def requested_strategy(request: Request) -> Strategy:
    """Return the strategy that a request names.

    Raises:
        ConfigurationError: the value is not a strategy.
        UnsupportedParameterError: the request's method supports no strategy.
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


def choose_kind(context: StrategyContext) -> StrategyKind:
    """Return the kind of strategy to use, and note why.

    ``auto`` uses what the endpoint is *known* to support and the request allows, best first: ``remote``,
    which is exact and needs a draft model, then ``prediction``. It never selects ``prefill``, which the
    target does not verify, nor a draft for an engine in this process, which drafts by itself.
    """
    kind = context.strategy.kind
    if kind != "auto":
        context.note(f"strategy {kind!r} requested")
        return kind
    has_draft = context.draft is not None and context.endpoint is not None
    ineligible = ineligibility(context)
    if has_draft and ineligible is None:
        context.note(f"auto: {context.target_label} scores prompts, so it can verify a draft's tokens")
        return "remote"
    has_prediction = any(
        request_param(context.request, name) is not None for name in ("prediction", "speculation")
    )
    if (has_prediction or has_draft) and prediction.can_predict(context):
        context.note(f"auto: {context.target_label} verifies predictions")
        return "prediction"
    if has_draft and ineligible:
        reason = ineligible[0]
    elif has_draft or has_prediction:
        reason = f"{context.target_label} is not known to verify predictions"
    elif context.draft is not None:
        reason = f"{context.target_label} drafts by itself"
    else:
        reason = "neither draft nor prediction was given"
    context.note(f"auto: sent without a strategy, {reason}")
    return "direct"
