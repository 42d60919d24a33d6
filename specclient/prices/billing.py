"""Billing: exact dollars by kind, from rates and the usage of a call.

Money is ``Decimal`` throughout. A price per million tokens times a count is exact and not rounded. Engine
time is measured, and its cost is rounded to the nano-dollar.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import NamedTuple

from specclient.prices.overlapping_tokens import with_cached_media, without_excess
from specclient.prices.rates import EXACT, PriceRates, Quote
from specclient.prices.unit_costs import UnitBill, unit_costs
from specclient.types.usage import Cost, Usage, UsageUnit

__all__ = ["BillingContext", "bill", "total_of"]

_ZERO = Decimal(0)
_NANO_STEP = Decimal("1e-9")
_SECONDS_PER_HOUR = Decimal(3600)
#: The counts of a usage that are parts of all prompt or completion tokens.
_parts_of = attrgetter(
    "cached", "cache_write", "cache_write_1h", "reasoning", "rejected_prediction", "audio_prompt",
    "image_prompt", "audio_completion", "image_completion", "cached_audio", "cached_image",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BillingContext:
    """The facts that billing needs in addition to token counts.

    Attributes:
        engine_s: seconds of engine time, None if unknown.
        latency_s: seconds of the call; the estimate if the engine time is unknown.
        rejected_billed: whether the rejected tokens of a prediction are billed and so part of ``completion``
            (OpenAI, "Predicted Outputs"); None, unknown, counts as True.
    """

    engine_s: float | None = None
    latency_s: float | None = None
    rejected_billed: bool | None = None


def bill(usage: Usage, quote: Quote, context: BillingContext) -> Cost:
    """Return the cost of a call, every token, unit and second billed once.

    Returns:
        The cost. If a count that it needs is unknown, ``total`` is None and ``source`` gives the reason.
    """
    rates, source, estimated = quote.rates, quote.source, quote.estimated or usage.estimated
    billed = _unit_bill(usage, rates)
    units = billed.by_kind
    is_counted = usage.prompt is not None or usage.completion is not None
    if usage.units and not (units or is_counted or rates.per_hour or rates.per_call is not None):
        return Cost(source=f"no price for {billed.missing}; {source}", estimated=estimated)
    if rates.by_units_alone and not units:
        return Cost(source=f"{', '.join(rates.units)}: count unknown; {source}", estimated=estimated)
    tokens = _NO_TOKENS
    if rates.input is not None and (is_counted or not units):
        problem = _missing_count(usage, rates)
        if problem:
            return Cost(source=f"{problem}; {source}", estimated=estimated)
        tokens = _bill_tokens(usage, rates, context)
        source, estimated = source + tokens.note, estimated or tokens.estimated
    elif not units:
        estimated = quote.estimated
    if billed is not _NO_UNITS:
        missing = _missing_prices(usage, quote, billed)
        notes = [source, billed.notes, f"without a price for {missing}" if missing else ""]
        source, estimated = "; ".join(filter(None, notes)), estimated or billed.estimated or bool(missing)
    by_kind = {**tokens.by_kind, **units}
    if rates.per_hour:
        seconds = context.engine_s if context.engine_s is not None else context.latency_s
        if seconds is None:
            return Cost(source=f"engine time unknown; {source}", estimated=estimated)
        if context.engine_s is None:
            source, estimated = f"{source}; by the seconds the call took", True
        by_kind |= {kind: _time_cost(rate, seconds) for kind, rate in rates.per_hour.items()}
    if rates.per_call is not None:
        by_kind["request"] = rates.per_call
    if rates.per_search is not None and usage.searches:
        by_kind["web_search"] = EXACT.multiply(rates.per_search, Decimal(usage.searches))
    total = _ZERO
    for dollars in by_kind.values():
        total = EXACT.add(total, dollars)
    return Cost(
        total=total, by_kind=by_kind, source=source, estimated=estimated, cache_saved=tokens.cache_saved
    )


def _unit_bill(usage: Usage, rates: PriceRates) -> UnitBill:
    """Return the cost of the units of a usage, and of its web searches if they have no price of their own."""
    units = usage.units
    if usage.searches and rates.per_search is None:
        units = (*units, UsageUnit("web_search", Decimal(usage.searches)))
    return unit_costs(units, rates.units) if units else _NO_UNITS


def _missing_prices(usage: Usage, quote: Quote, billed: UnitBill) -> str:
    """Return what has no price beside units that have one, in words."""
    has_tokens = quote.for_units_alone and (usage.prompt or usage.completion)
    return ", ".join(filter(None, [billed.missing, "its tokens" if has_tokens else ""]))


class _TokenBill(NamedTuple):
    """The cost of tokens, with a note for the source of the price."""

    by_kind: dict[str, Decimal]
    note: str = ""
    estimated: bool = False
    cache_saved: Decimal | None = None


_NO_TOKENS = _TokenBill({})
_NO_UNITS = UnitBill({})


def _bill_tokens(usage: Usage, rates: PriceRates, context: BillingContext) -> _TokenBill:
    if not any(_parts_of(usage)):  # the usage of most calls has none
        by_kind = {
            "input": _token_cost(rates.input or _ZERO, usage.prompt or 0),
            "output": _token_cost(rates.output or _ZERO, usage.completion or 0),
        }
        return _TokenBill(by_kind)
    usage, unsure = with_cached_media(usage, rates)
    names = _kinds(rates, context)
    usage, note = without_excess(usage, *names)
    by_kind, assumed = _token_costs(usage, rates, context)
    return _TokenBill(by_kind, note, usage.estimated or assumed or unsure, _cache_saved(usage, rates))


def _kinds(rates: PriceRates, context: BillingContext) -> tuple[list[str], list[str]]:
    """Return the names of the kinds of prompt and of completion tokens that are billed apart.

    Audio and image tokens read from a cache are in two kinds if the response does not state which were
    cached, and count as cached; without a rate of cached tokens, as audio and images.
    """
    has_media = rates.audio_input is not None or rates.image_input is not None
    prompt = ["cache_write"] if has_media and rates.cached_input is None else ["cached", "cache_write"]
    completion = ["reasoning"]
    if context.rejected_billed is not False:
        completion.append("rejected_prediction")
    for kind in ("audio", "image"):
        for names, end, rate in ((prompt, "prompt", "input"), (completion, "completion", "output")):
            if getattr(rates, f"{kind}_{rate}") is not None:
                names.append(f"{kind}_{end}")
        if getattr(rates, f"cached_{kind}_input") is not None:
            prompt.append(f"cached_{kind}")
    return prompt, completion


def total_of(
    prompt: int, completion: int, rates: PriceRates, seconds: float | None, cached: int = 0
) -> Decimal | None:
    """Return the dollars of a call with these tokens, as :func:`bill` would, but faster.

    Args:
        prompt, completion: tokens.
        seconds: of engine time.
        cached: the tokens of the prompt that are cached.

    Returns:
        None if the seconds, or a rate, are needed but unknown.
    """
    total = _ZERO
    if rates.input is not None:
        if rates.output is None and completion:
            return None
        millionths = EXACT.multiply(rates.input, Decimal(prompt))
        if cached and rates.cached_input is not None:
            less = EXACT.subtract(rates.cached_input, rates.input)
            millionths = EXACT.fma(less, Decimal(cached), millionths)
        millionths = EXACT.fma(rates.output or _ZERO, Decimal(completion), millionths)
        total = millionths.scaleb(-6, context=EXACT)
    for rate in rates.per_hour.values():
        if seconds is None:
            return None
        total = EXACT.add(total, _time_cost(rate, seconds))
    return total if rates.per_call is None else EXACT.add(total, rates.per_call)


def _missing_count(usage: Usage, rates: PriceRates) -> str | None:
    """Return why a call cannot be billed by its tokens, None if it can."""
    if usage.prompt is None or usage.completion is None:
        unknown = [name for name in ("prompt", "completion") if getattr(usage, name) is None]
        return f"{' and '.join(unknown)} tokens unknown"
    if rates.output is None and usage.completion:
        return "no price for generated tokens"
    return None


def _token_costs(usage: Usage, rates: PriceRates, context: BillingContext) -> tuple[dict[str, Decimal], bool]:
    """Bill the kinds of tokens that have a rate, then the remaining input and output tokens.

    Returns:
        Dollars by kind, and whether a rate had to be assumed.
    """
    written, written_1h = usage.cache_write or 0, usage.cache_write_1h or 0
    assumed = bool(written_1h) and rates.cache_write_1h is None and rates.cache_write is not None
    for count, rate in (
        (usage.audio_prompt, rates.audio_input),
        (usage.audio_completion, rates.audio_output),
    ):
        assumed = assumed or (bool(count) and rate is None)  # billed as text; audio usually costs more
    if rates.cache_write_1h is not None:
        written -= written_1h
    rejected = (usage.rejected_prediction or 0) if context.rejected_billed is not False else 0
    output = rates.output or _ZERO
    prompt, completion = usage.prompt or 0, usage.completion or 0
    by_kind: dict[str, Decimal] = {}
    for kind, rate, count in (
        ("cached_input", rates.cached_input, usage.cached or 0),
        ("cache_write", rates.cache_write, written),
        ("cache_write_1h", rates.cache_write_1h, written_1h),
        ("audio_input", rates.audio_input, usage.audio_prompt or 0),
        ("image_input", rates.image_input, usage.image_prompt or 0),
        ("cached_audio_input", rates.cached_audio_input, usage.cached_audio or 0),
        ("cached_image_input", rates.cached_image_input, usage.cached_image or 0),
    ):
        if rate is not None and count:
            by_kind[kind] = _token_cost(rate, count)
            prompt -= count
    by_kind["input"] = _token_cost(rates.input or _ZERO, prompt)
    for kind, rate, count in (
        ("reasoning", rates.reasoning, usage.reasoning or 0),
        ("rejected_prediction", _first(rates.rejected_prediction, output), rejected),
        ("audio_output", rates.audio_output, usage.audio_completion or 0),
        ("image_output", rates.image_output, usage.image_completion or 0),
    ):
        if rate is not None and count:
            by_kind[kind] = _token_cost(rate, count)
            completion -= count
    by_kind["output"] = _token_cost(output, completion)
    return by_kind, assumed


def _cache_saved(usage: Usage, rates: PriceRates) -> Decimal | None:
    """Return the dollars by which the prompt cache changed the cost; see :class:`Cost`.

    Args:
        usage: each token in one kind, as for :func:`_token_costs`.
    """
    text = rates.input or _ZERO
    written, written_1h = usage.cache_write or 0, usage.cache_write_1h or 0
    if rates.cache_write_1h is not None:
        written -= written_1h
    kinds = (
        (rates.cached_input, text, usage.cached),
        (rates.cache_write, text, written),
        (rates.cache_write_1h, text, written_1h),
        (rates.cached_audio_input, _first(rates.audio_input, text), usage.cached_audio),
        (rates.cached_image_input, _first(rates.image_input, text), usage.cached_image),
    )
    known = [(EXACT.subtract(full, rate), count) for rate, full, count in kinds if rate is not None and count]
    if not known:
        return None
    saved = _ZERO
    for difference, count in known:
        saved = EXACT.add(saved, _token_cost(difference, count))
    return saved


def _token_cost(rate: Decimal, count: int) -> Decimal:
    return EXACT.multiply(rate, Decimal(count)).scaleb(-6, context=EXACT)


def _time_cost(rate: Decimal, seconds: float) -> Decimal:
    dollars = EXACT.divide(EXACT.multiply(rate, Decimal(repr(seconds))), _SECONDS_PER_HOUR)
    return dollars.quantize(_NANO_STEP, context=EXACT)


def _first(one: Decimal | None, other: Decimal) -> Decimal:
    return other if one is None else one
