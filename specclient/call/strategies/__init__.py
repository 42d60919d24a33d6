"""Speculation played from this side: predicted outputs, committed prefixes, verification over the wire."""

from specclient.call.strategies.context import (
    LOCAL_ENGINE_CAPABILITIES,
    ModelClient,
    StrategyContext,
    StrategyOutcome,
)
from specclient.call.strategies.cost_benefit import PredictionHistory, PredictionValue, worth_sending
from specclient.call.strategies.dispatch import stream, whole
from specclient.call.strategies.selection import choose_kind, requested_strategy

__all__ = [
    "LOCAL_ENGINE_CAPABILITIES",
    "ModelClient",
    "PredictionHistory",
    "PredictionValue",
    "StrategyContext",
    "StrategyOutcome",
    "choose_kind",
    "requested_strategy",
    "stream",
    "whole",
    "worth_sending",
]
