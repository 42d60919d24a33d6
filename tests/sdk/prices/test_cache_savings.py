"""The savings of a prompt cache: the cost of the same tokens without it, less their cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from specclient.prices.billing import BillingContext, bill
from specclient.prices.rates import PriceRates, Quote
from specclient.types.usage import Usage

rate = st.none() | st.integers(0, 2000).map(lambda cents: Decimal(cents) / 100)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Draw a usage whose kinds of prompt tokens add up to at most all prompt tokens."""
    text, read, written, hour, audio, heard = (draw(st.integers(0, 10**6)) for _ in range(6))
    return Usage(
        prompt=text + read + written + hour + audio + heard,
        completion=draw(st.integers(0, 10**6)),
        cached=read + heard,
        cache_write=written + hour,
        cache_write_1h=hour,
        audio_prompt=audio + heard,
        cached_audio=heard,
    )


@settings(max_examples=150, deadline=None)
@given(usages(), st.tuples(*[rate] * 5))
def test_savings_are_the_difference_of_two_bills(usage: Usage, rates: tuple[Decimal | None, ...]) -> None:
    cached, write, write_1h, audio, cached_audio = rates
    quote = Quote(
        PriceRates(
            input=Decimal(3),
            output=Decimal(9),
            cached_input=cached,
            cache_write=write,
            cache_write_1h=write_1h,
            audio_input=audio,
            cached_audio_input=cached_audio,
        ),
        "",
    )
    cost = bill(usage, quote, BillingContext())
    without = replace(usage, cached=None, cache_write=None, cache_write_1h=None, cached_audio=None)
    plain = bill(without, quote, BillingContext())
    assert cost.total is not None
    assert plain.total is not None
    if audio is not None and cached_audio is None and cached is not None and usage.cached_audio:
        return  # cached audio has no price of its own, so its saving is an assumption
    assert (cost.cache_saved or 0) == plain.total - cost.total
