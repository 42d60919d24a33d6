"""A tariff's prediction is the price table's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specclient import Settings
from specclient.prices.prices import Prices
from specclient.routing.choose.tariff import Tariff

RATES = st.decimals(0, 100, places=4)
TABLES = st.fixed_dictionaries(
    {"input": RATES, "output": RATES}, optional={"per_call": RATES, "cached_input": RATES, "reasoning": RATES}
) | st.fixed_dictionaries({"per_gpu_second": RATES}, optional={"per_call": RATES})


@given(
    table=TABLES,
    prompt=st.integers(0, 10**6),
    tokens=st.integers(0, 10**5),
    engine_s=st.none() | st.floats(0, 1000),
    latency_s=st.none() | st.floats(0, 1000),
)
def test_a_tariffs_prediction_equals_the_price_tables(table, prompt, tokens, engine_s, latency_s):
    prices = Prices(Settings.model_validate({"prices": {"a/b": table}}))
    found = Tariff.of(prices.quote("a", "b", prompt=prompt)).dollars(prompt, tokens, engine_s, latency_s)
    assert found == prices.predict(prompt, tokens, "a", "b", engine_s=engine_s, latency_s=latency_s)
