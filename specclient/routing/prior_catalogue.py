"""The catalogue of priors: published speeds of hosted models, and speeds that size and hardware imply.

They serve until a route has answered. What is published weighs as much as two calls after that; what is only
implied is replaced.
"""

from __future__ import annotations

from typing import NamedTuple

from specclient.config import Settings
from specclient.routing.choose.draft_pairs import pair_facts
from specclient.routing.learn.priors import PRIORS, RoutePrior
from specclient.routing.learn.similar_routes import model_billions

__all__ = ["PriorCatalogue", "hardware_prior"]


class PublishedSpeed(NamedTuple):
    """The published speed of a provider's models of about one size.

    Attributes:
        provider: the name before the slash of a route.
        billions: the parameters of the measured model.
        tokens_s, ttft_s, prefill_s: tokens per second of an answer, seconds to the first token of a short
            prompt, and prompt tokens read per second.
    """

    provider: str
    billions: float
    tokens_s: float
    ttft_s: float
    prefill_s: float


#: Llama 3.3 70B: medians of the comparison at kickllm.com/research/llm-speed-benchmark (April 2026). The
#: prefill of hosts with hardware of their own is assumed to be twice that of GPU hosts.
_PUBLISHED = (
    PublishedSpeed("groq", 70, 300, 0.15, 20_000),
    PublishedSpeed("cerebras", 70, 290, 0.14, 20_000),
    PublishedSpeed("together", 70, 120, 0.25, 10_000),
    PublishedSpeed("fireworks", 70, 160, 0.25, 10_000),
)
#: By kind of device: bytes per second of its memory and operations per second that an engine reaches. CPU: a
#: desktop with two channels of DDR5; CUDA: half of what NVIDIA's data sheet of the L40S gives.
_DEVICES = {"cpu": (30e9, 0.5e12), "cuda": (430e9, 90e12)}
#: The weight of a published speed in calls.
_CALLS = 2
#: Seconds to the first token in addition to the prefill.
_OVERHEAD_S = 0.05


class PriorCatalogue:
    """The priors of the routes of one configuration.

    Args:
        settings: the local models, with their drafts and devices.
    """

    def __init__(self, settings: Settings) -> None:
        self._models = settings.local.models
        self._known: dict[str, RoutePrior | None] = dict(PRIORS)

    def get(self, route: str) -> RoutePrior | None:
        """Return the prior of a route, None where nothing is published or implied."""
        if route not in self._known:
            if len(self._known) > 4096:
                self._known = dict(PRIORS)
            head, _, model = route.partition("/")
            self._known[route] = self._local(model) if head == "local" else _published(head, model)
        return self._known[route]

    def _local(self, name: str) -> RoutePrior | None:
        model = self._models.get(name)
        billions = None if model is None else model_billions(model.path)
        if model is None or billions is None:
            return None
        device = str((model.model_extra or {}).get("device", "cpu")).partition(":")[0]
        made = hardware_prior(billions, device)
        if made is None or not isinstance(model.draft, str):
            return made
        ratios = pair_facts(model.path, model.draft).cost_ratio
        return made if ratios is None else made._replace(cost_ratio=ratios["chat"])


def hardware_prior(billions: float, device: str) -> RoutePrior | None:
    """Return the speed of a model of so many parameters, two bytes each, on a device.

    A token of the answer reads all weights once; a token of the prompt takes two operations for each
    parameter.

    Args:
        device: ``cpu`` or ``cuda``; None is returned for others.
    """
    if device not in _DEVICES:
        return None
    bytes_s, operations_s = _DEVICES[device]
    weights = billions * 1e9
    return RoutePrior(
        ttft_s=_OVERHEAD_S + 2 * weights / bytes_s,
        token_s=2 * weights / bytes_s,
        prompt_token_s=2 * weights / operations_s,
    )


def _published(provider: str, model: str) -> RoutePrior | None:
    """Return the published speed of a provider, for a model whose name has its size."""
    billions = model_billions(model)
    row = next((each for each in _PUBLISHED if each.provider == provider), None)
    if row is None or billions is None:
        return None
    larger = max(billions, 1.0) / row.billions
    slower = larger**0.5  # published speeds of small models are less than in proportion
    return RoutePrior(row.ttft_s, slower / row.tokens_s, prompt_token_s=slower / row.prefill_s, calls=_CALLS)
