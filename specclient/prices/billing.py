"""Turn rates and what a call used into exact dollars by kind.

Money is ``Decimal`` throughout. A price per million tokens times a count is exact and is not rounded; engine
time is a measurement and is rounded to the nano-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from specclient.config import DEFAULT_DEVICE_COST_PER_HOUR, LocalSettings, PriceSettings
from specclient.types.usage import Cost, Usage

__all__ = ["EXACT", "BillingContext", "PriceRates", "Quote", "bill", "total_of"]

#: Wide enough for every product of a price and a count, whatever context the caller's thread has set.
EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_ZERO = Decimal(0)
_NANO_STEP = Decimal("1e-9")
_SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True)
class PriceRates:
    """What a call costs; a part of its tokens without a rate of its own is billed with its whole.

    Attributes:
        input, output, cached_input, cache_write, cache_write_1h, audio_input, image_input, reasoning,
            rejected_prediction, audio_output, image_output: dollars per million tokens; ``input`` is None
            where tokens cost nothing of their own.
        per_call, per_search: dollars.
        per_hour: dollars for an hour of work, by kind.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    rejected_prediction: Decimal | None = None
    audio_input: Decimal | None = None
    image_input: Decimal | None = None
    audio_output: Decimal | None = None
    image_output: Decimal | None = None
    per_call: Decimal | None = None
    per_search: Decimal | None = None
    per_hour: Mapping[str, Decimal] = field(default_factory=dict)

    @classmethod
    def of_settings(cls, price: PriceSettings) -> PriceRates:
        """Return the rates of a ``[prices]`` table."""
        named = price.model_dump(exclude={"per_gpu_second"})
        if price.per_gpu_second is None:
            return cls(**named)
        return cls(**named, per_hour={"engine": EXACT.multiply(price.per_gpu_second, _SECONDS_PER_HOUR)})

    @classmethod
    def of_engine(cls, local: LocalSettings) -> PriceRates:
        """Return the rates of the engine in this process."""
        rate = local.device_cost_per_hour
        per_hour = {"engine": DEFAULT_DEVICE_COST_PER_HOUR if rate is None else rate}
        if local.watts is not None and local.electricity_cost_per_kwh is not None:
            per_hour["electricity"] = EXACT.multiply(
                local.watts.scaleb(-3, context=EXACT), local.electricity_cost_per_kwh
            )
        return cls(per_hour=per_hour)


@dataclass(frozen=True, slots=True)
class Quote:
    """What would be charged, and where that is known from.

    Attributes:
        rates: at the date and the length of prompt that were asked about.
        source: in words.
        estimated: the price is not known to hold: assumed, or found by a model's name alone.
    """

    rates: PriceRates
    source: str
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class BillingContext:
    """What a call used beside tokens.

    Attributes:
        engine_s: seconds of engine time; None where it is not known.
        latency_s: seconds the call took, which stand for engine time that no server tells, as an estimate.
        rejected_billed: whether a prediction's rejected tokens are billed, and so inside ``completion``
            (OpenAI, "Predicted Outputs"); None, unknown, counts as yes. False where they are neither.
    """

    engine_s: float | None = None
    latency_s: float | None = None
    rejected_billed: bool | None = None


def bill(usage: Usage, quote: Quote, work: BillingContext) -> Cost:
    """Bill every token and second once.

    Returns:
        A cost without a total, and with the reason as its source, where a count that it needs is unknown.
    """
    rates, source, estimated = quote.rates, quote.source, quote.estimated
    by_kind: dict[str, Decimal] = {}
    if rates.input is not None:
        lacking = _lacking(usage, rates)
        if lacking:
            return Cost(source=f"{lacking}; {source}", estimated=estimated or usage.estimated)
        usage, note = _consistent(usage, rates, work)
        by_kind, assumed = _tokens(usage, rates, work)
        source += note
        estimated = estimated or usage.estimated or assumed
    if rates.per_hour:
        seconds = work.engine_s if work.engine_s is not None else work.latency_s
        if seconds is None:
            return Cost(source=f"engine time unknown; {source}", estimated=estimated)
        if work.engine_s is None:
            source, estimated = f"{source}; by the seconds the call took", True
        by_kind |= {kind: _timed(rate, seconds) for kind, rate in rates.per_hour.items()}
    if rates.per_call is not None:
        by_kind["request"] = rates.per_call
    if rates.per_search is not None and usage.searches:
        by_kind["web_search"] = EXACT.multiply(rates.per_search, Decimal(usage.searches))
    total = _ZERO
    for dollars in by_kind.values():
        total = EXACT.add(total, dollars)
    return Cost(total=total, by_kind=by_kind, source=source, estimated=estimated)


def total_of(prompt: int, completion: int, rates: PriceRates, seconds: float | None) -> Decimal | None:
    """Return the dollars of a plain call, as :func:`bill` does for one of these tokens, and quicker.

    Args:
        seconds: of work on it. None is returned where they, or a rate, would be needed and are not known.
    """
    total = _ZERO
    if rates.input is not None:
        if rates.output is None and completion:
            return None
        total = EXACT.add(_bill(rates.input, prompt), _bill(rates.output or _ZERO, completion))
    for rate in rates.per_hour.values():
        if seconds is None:
            return None
        total = EXACT.add(total, _timed(rate, seconds))
    return total if rates.per_call is None else EXACT.add(total, rates.per_call)


def _lacking(usage: Usage, rates: PriceRates) -> str | None:
    """Return what is not known of a call that is billed by its tokens."""
    unknown = [name for name in ("prompt", "completion") if getattr(usage, name) is None]
    if unknown:
        return f"{' and '.join(unknown)} tokens unknown"
    if rates.output is None and usage.completion:
        return "no price for generated tokens"
    return None


def _tokens(usage: Usage, rates: PriceRates, work: BillingContext) -> tuple[dict[str, Decimal], bool]:
    """Bill the parts that have a rate of their own, then the rest of their wholes.

    Returns:
        Dollars by kind, and whether the rate of a part had to be assumed.
    """
    written, written_1h = usage.cache_write or 0, usage.cache_write_1h or 0
    assumed = bool(written_1h) and rates.cache_write_1h is None and rates.cache_write is not None
    for count, rate in (
        (usage.audio_prompt, rates.audio_input),
        (usage.audio_completion, rates.audio_output),
    ):
        assumed = assumed or (bool(count) and rate is None)  # as text, which sound seldom costs as little as
    if rates.cache_write_1h is not None:
        written -= written_1h
    rejected = (usage.rejected_prediction or 0) if work.rejected_billed is not False else 0
    output = rates.output or _ZERO
    prompt, completion = usage.prompt or 0, usage.completion or 0
    by_kind: dict[str, Decimal] = {}
    for kind, rate, count in (
        ("cached_input", rates.cached_input, usage.cached or 0),
        ("cache_write", rates.cache_write, written),
        ("cache_write_1h", rates.cache_write_1h, written_1h),
        ("audio_input", rates.audio_input, usage.audio_prompt or 0),
        ("image_input", rates.image_input, usage.image_prompt or 0),
    ):
        if rate is not None and count:
            by_kind[kind] = _bill(rate, count)
            prompt -= count
    by_kind["input"] = _bill(rates.input or _ZERO, prompt)
    for kind, rate, count in (
        ("reasoning", rates.reasoning, usage.reasoning or 0),
        ("rejected_prediction", _first(rates.rejected_prediction, output), rejected),
        ("audio_output", rates.audio_output, usage.audio_completion or 0),
        ("image_output", rates.image_output, usage.image_completion or 0),
    ):
        if rate is not None and count:
            by_kind[kind] = _bill(rate, count)
            completion -= count
    by_kind["output"] = _bill(output, completion)
    return by_kind, assumed


def _consistent(usage: Usage, rates: PriceRates, work: BillingContext) -> tuple[Usage, str]:
    """Cut parts that exceed their whole, as a server might report them, and mark the result an estimate.

    Sound and images that were read from a cache are in two parts, and count for the cache; where neither has
    a rate of its own it does not matter.
    """
    prompt, completion = ["cached", "cache_write"], ["reasoning"]
    if work.rejected_billed is not False:
        completion.append("rejected_prediction")
    for kind in ("audio", "image"):
        for whole, end, rate in ((prompt, "prompt", "input"), (completion, "completion", "output")):
            if getattr(rates, f"{kind}_{rate}") is not None:
                whole.append(f"{kind}_{end}")
    parts = _cut(usage, usage.prompt or 0, prompt) | _cut(usage, usage.completion or 0, completion)
    parts["cache_write_1h"] = min(usage.cache_write_1h or 0, parts["cache_write"])
    if all((getattr(usage, name) or 0) == count for name, count in parts.items()):
        return usage, ""
    changed: dict[str, Any] = {**parts, "estimated": True}
    return replace(usage, **changed), "; the reported parts exceeded their whole and were cut"


def _cut(usage: Usage, whole: int, names: Iterable[str]) -> dict[str, int]:
    """Return parts of a whole, each of at most what those before it leave."""
    parts = {}
    for name in names:
        parts[name] = min(getattr(usage, name) or 0, whole)
        whole -= parts[name]
    return parts


def _bill(rate: Decimal, count: int) -> Decimal:
    return EXACT.multiply(rate, Decimal(count)).scaleb(-6, context=EXACT)


def _timed(rate: Decimal, seconds: float) -> Decimal:
    dollars = EXACT.divide(EXACT.multiply(rate, Decimal(repr(seconds))), _SECONDS_PER_HOUR)
    return dollars.quantize(_NANO_STEP, context=EXACT)


def _first(one: Decimal | None, other: Decimal) -> Decimal:
    return other if one is None else one
