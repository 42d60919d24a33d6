"""Advice for an engine that does not fit in memory: the options with which it does.

Each option is planned as the engine itself is, so that the engine fits with every option that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from specclient.errors import ConfigurationError
from specclient_local.loading.memory_plan import DeviceMemoryPlan, memory_plans
from specclient_local.loading.options import EngineOptions
from specclient_local.model.devices import resolve_device
from specclient_local.model.quantization import check_quantization

_LEAST_CONTEXT = 256
"""Context below which a shorter one is advised only if nothing else fits."""

_SHORTEST = 2
"""The shortest context that an engine can have."""

_FORMATS: tuple[Mapping[str, str], ...] = (
    {"dtype": "bfloat16"},
    {"dtype": "bfloat16", "quantize": "int8"},
    {"dtype": "bfloat16", "quantize": "fp8"},
    {"dtype": "bfloat16", "quantize": "int4"},
)
"""Formats of weights, from the most exact one to the smallest."""


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """An engine before it is loaded; arguments as for :func:`memory_plans`."""

    target: Path
    drafts: Sequence[Path]
    options: EngineOptions
    context: int
    free: Callable[[torch.device], int | None]
    heads: Sequence[Path] = ()

    def plans(self) -> dict[str, DeviceMemoryPlan]:
        """Return the memory plan of each device.

        Raises:
            CheckpointError, ConfigurationError: see :func:`memory_plans`.
        """
        return memory_plans(self.target, self.drafts, self.options, self.context, self.free, heads=self.heads)

    def checked(self) -> dict[str, DeviceMemoryPlan]:
        """Return the memory plan of each device, after a check that the models fit in its memory.

        Raises:
            ConfigurationError: they do not; names the sizes, and options with which they fit.
        """
        plans = self.plans()
        short = next(((name, plan) for name, plan in plans.items() if not plan.fits), None)
        if short is None:
            return plans
        device, plan = short
        raise ConfigurationError(f"{plan.described(device)} {self.advice()}")

    def advice(self) -> str:
        """Return a sentence with options with which the models fit, or that they fit in no format."""
        single = [*self._single_changes()]
        if single:
            return f"They fit with {' or '.join(single)}."
        smallest = [self._changed({**formats, "slots": 1}) for formats in ({}, *self._formats())]
        longest = [each._longest_context() for each in smallest]
        enough = next((length for length in longest if length >= self._useful), max(longest))
        if enough:
            options = smallest[longest.index(enough)].options
            return f"They fit with {self._listed(options)} and a context of {enough} together."
        least = min(
            (replace(each, context=_SHORTEST) for each in smallest),
            key=lambda each: sum(plan.total for plan in each.plans().values()),
        )
        most = max(least.plans().values(), key=lambda plan: plan.total - (plan.memory or 0))
        return (
            f"They fit in no format: {self._listed(least.options)} and the shortest context need "
            f"{most.total_text}. Choose a smaller model, or free memory."
        )

    @property
    def _useful(self) -> int:
        """The context from which on a shorter one is worth advising."""
        return min(_LEAST_CONTEXT, self.context // 2)

    def _listed(self, options: EngineOptions) -> str:
        """Return the data types that differ from those of this engine, and the one slot."""
        names = ("dtype", "quantize", "draft_quantize")
        changed = {name: getattr(options, name) for name in names}
        own = {name: value for name, value in changed.items() if value != getattr(self.options, name)}
        return ", ".join([*_named(own), "1 slot"])

    def _single_changes(self) -> Iterator[str]:
        """Yield options each of which suffices."""
        tokens = self._most_cache_tokens()
        if tokens:
            yield f"cache_tokens {tokens}"
        longest = self._longest_context()
        if longest >= max(self._useful, _SHORTEST):
            yield f"a context of {longest}"
        slots = self._most_slots()
        if slots:
            yield "1 slot" if slots == 1 else f"{slots} slots"
        for formats in self._formats():
            if self._changed(formats)._fits():
                yield " and ".join(_named(formats))
                return  # the smaller ones fit, too

    def _longest_context(self) -> int:
        """Return the longest context with which all devices have room, below the present one; 0 for none."""
        short = (plan.max_context for plan in self.plans().values() if not plan.fits)
        longest = min([self.context, *(limit for limit in short if limit is not None)])
        return longest if longest >= _SHORTEST and self._changed({}, longest)._fits() else 0

    def _most_slots(self) -> int:
        """Return the number of slots for which all devices have room; 0 for none."""
        short = (plan.max_slots for plan in self.plans().values() if not plan.fits)
        slots = min([self.options.slots, *(limit for limit in short if limit is not None)])
        return slots if slots and self._changed({"slots": slots})._fits() else 0

    def _most_cache_tokens(self) -> int:
        """Return the positions for which a cache in pages has room where more are asked for; 0 for none."""
        if self.options.cache_tokens is None:
            return 0
        tokens = min((plan.max_cache_tokens or 0 for plan in self.plans().values() if plan.paged), default=0)
        fits = tokens >= self.context and self._changed({"cache_tokens": tokens})._fits()
        return tokens if fits else 0

    def _formats(self) -> list[dict[str, str]]:
        """Return changes of data types, without those that this machine or the target's device refuses."""
        device = resolve_device(self.options.device)
        found = []
        for formats in _FORMATS:
            own = {name: value for name, value in formats.items() if getattr(self.options, name) != value}
            kind = formats.get("quantize")
            if not own or (kind is None and self.options.quantize is not None):
                continue
            if kind and not self._can_quantize(kind, device):
                continue
            if "quantize" in own and device.type == "cpu" and self.options.dtype == "float32":
                del own["dtype"]  # the matrices are quantised in either case
            found.append(own)
            if kind and self.drafts and self.options.draft_quantize != kind:
                found.append({**own, "draft_quantize": kind})
        return found

    def _can_quantize(self, kind: str, device: torch.device) -> bool:
        """Return whether a device supports a format, and what it needs is installed."""
        try:
            check_quantization(kind, device)
        except ConfigurationError:
            return False
        packed = all(model.packed for plan in self.plans().values() for model in plan.models[:1])
        return kind == "int4" or (device.type == "cpu" and packed) or find_spec("torchao") is not None

    def _fits(self) -> bool:
        return all(plan.fits for plan in self.plans().values())

    def _changed(self, changes: Mapping[str, Any], context: int | None = None) -> PlannedEngine:
        """Return the engine with other options, and another context."""
        options = replace(self.options, **changes)
        return replace(self, options=options, context=self.context if context is None else context)


def _named(changes: Mapping[str, Any]) -> list[str]:
    """Return changed options as text."""
    return [f"{name} {value!r}" for name, value in changes.items()]
