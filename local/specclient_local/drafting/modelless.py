"""The drafters that need no model, by method. Every engine has them, whatever it was loaded with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.suffix import SuffixDrafter
from specclient_local.request.params import ENGINE_METHODS, EngineMethod, Method

MODELLESS_DRAFTERS: Mapping[Method, Callable[[], Drafter]] = {
    "prediction": PredictionDrafter,
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
}
"""The class of each drafter.

The speculator adds them all, and the loader uses the target's costs for their rounds. ``specclient local
pick`` and ``local bench`` measure those that an engine can be loaded with.
"""

MODELLESS_ENGINE_METHODS: tuple[EngineMethod, ...] = tuple(
    method for method in ENGINE_METHODS if method in MODELLESS_DRAFTERS
)
"""The methods without a model that an engine can be loaded with."""
