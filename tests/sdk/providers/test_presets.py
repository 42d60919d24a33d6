"""The table of providers is whole: every row can be used, and the facts that other parts rely on agree."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from specclient.errors import ConfigurationError, UnsupportedParameterError
from specclient.providers import DIALECTS, PRESETS, Preset, preset
from specclient.types import methods
from specclient.types.request import Request

HOSTED = {row.name for row in PRESETS.values() if row.key_required}


@pytest.mark.parametrize("row", PRESETS.values(), ids=lambda row: row.name)
def test_every_row_makes_an_endpoint_that_encodes(row: Preset) -> None:
    endpoint = row.endpoint(key=SecretStr("k"))
    wire = endpoint.dialect.encode(Request(methods.CHAT, "any", {"messages": []}), endpoint, "m")
    assert wire.url == row.base_url.rstrip("/") + "/chat/completions"
    assert wire.headers["authorization"] == "Bearer k"
    assert wire.deployment == f"{row.name}/m"
    assert row.dialect in DIALECTS


def test_hosted_rows_need_a_key_over_https_and_local_ones_neither() -> None:
    for row in PRESETS.values():
        if row.name in HOSTED:
            assert row.base_url.startswith("https://")
            assert row.key_env
        else:
            assert row.base_url.startswith("http://127.0.0.1:")
            row.endpoint().dialect.encode_models(row.endpoint())


def test_price_providers_exist_in_the_catalogue() -> None:
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    known = {provider.id for provider in snapshot.providers}
    assert {row.price_provider for row in PRESETS.values() if row.price_provider} <= known


def test_the_error_for_prediction_names_the_providers_that_take_it() -> None:
    endpoint = preset("groq").endpoint(key=SecretStr("k"))
    params = {"messages": [], "prediction": {"type": "content", "content": "x"}}
    with pytest.raises(UnsupportedParameterError) as caught:
        endpoint.dialect.encode(Request(methods.CHAT, "groq/m", params), endpoint, "m")
    for name, row in PRESETS.items():
        assert (f"{name}," in str(caught.value) or f"{name})" in str(caught.value)) == (
            row.capabilities.prediction is True
        )


def test_keys_are_looked_for_in_order() -> None:
    row = preset("gemini")
    assert row.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}) == SecretStr("a")
    assert row.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": ""}) == SecretStr("b")
    assert row.key_in({}) is None


def test_a_missing_key_names_the_variables() -> None:
    endpoint = preset("gemini").endpoint()
    with pytest.raises(ConfigurationError, match="set GEMINI_API_KEY or GOOGLE_API_KEY"):
        endpoint.dialect.encode(Request(methods.CHAT, "gemini/m", {}), endpoint, "m")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'opneai'; known are openai, anthropic"):
        preset("opneai")


def test_a_row_of_ones_own_with_an_unknown_dialect() -> None:
    with pytest.raises(ConfigurationError, match="'klingon'; known are openai"):
        Preset("x", "http://h", dialect="klingon").endpoint()
