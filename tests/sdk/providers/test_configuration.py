"""Which endpoints a client knows, with whose key, at which URL."""

from __future__ import annotations

import pytest

from specclient import ConfigurationError, NotFoundError, Settings
from specclient.config import ANY_VENDOR
from specclient.providers import PRESETS, Endpoint
from specclient.providers.configuration import endpoints
from specclient.routing.destinations import DestinationRegistry


def _key(endpoint: Endpoint) -> str | None:
    return endpoint.key.get_secret_value() if endpoint.key else None


def _settings(**tables: object) -> Settings:
    return Settings.model_validate(tables)


def test_keys_come_from_each_provider_s_own_variable() -> None:
    known = endpoints(Settings(), {"OPENAI_API_KEY": "sk-o", "GOOGLE_API_KEY": "g", "OPENAI_ORG_ID": "org"})
    assert set(known) == set(PRESETS)
    assert (_key(known["openai"]), _key(known["gemini"]), _key(known["groq"])) == ("sk-o", "g", None)
    assert known["openai"].organization == "org"
    assert "sk-o" not in repr(known)


def test_options_are_for_the_default_provider_alone() -> None:
    known = endpoints(
        Settings(), {"OPENAI_API_KEY": "env"}, api_key="argument", headers={"x-a": "1"}, query={"v": 2}
    )
    assert _key(known["openai"]) == "argument"
    assert known["openai"].headers == {"x-a": "1"}
    assert known["openai"].query == {"v": 2}
    assert known["groq"].headers == {}
    moved = endpoints(_settings(default_provider="groq"), {}, base_url="http://127.0.0.1:9/v1", api_key="k")
    assert moved["groq"].base_url == "http://127.0.0.1:9/v1"
    assert _key(moved["openai"]) is None


def test_prices_follow_the_url() -> None:
    assert endpoints(Settings(), {})["openai"].price_provider == "openai"
    at = {"OPENAI_BASE_URL": "https://api.groq.com/openai/v1/"}
    elsewhere = endpoints(Settings(), {}, base_url=at["OPENAI_BASE_URL"])["openai"]
    assert elsewhere.price_provider == PRESETS["groq"].price_provider
    assert endpoints(Settings(), at)["openai"].price_provider == PRESETS["groq"].price_provider
    elsewhere = endpoints(Settings(), {}, base_url="http://127.0.0.1:9/v1")["openai"]
    assert elsewhere.price_provider == ANY_VENDOR


def test_a_server_of_one_s_own_needs_no_key() -> None:
    assert endpoints(Settings(), {})["openai"].key_required
    assert not endpoints(Settings(), {}, base_url="http://127.0.0.1:9/v1")["openai"].key_required
    assert not endpoints(Settings(), {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})["openai"].key_required


def test_tables_define_and_change_providers() -> None:
    settings = _settings(
        providers={
            "mine": {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "MINE", "headers": {"x": "y"}},
            "groq": {"api_key": "from-file", "stream_usage": False, "price_provider": "groq"},
        }
    )
    known = endpoints(settings, {"MINE": "m", "GROQ_API_KEY": "env"})
    assert (_key(known["mine"]), known["mine"].key_env, known["mine"].headers) == ("m", ("MINE",), {"x": "y"})
    assert (_key(known["groq"]), known["groq"].base_url) == ("from-file", PRESETS["groq"].base_url)
    assert not known["groq"].requests_usage
    assert endpoints(settings, {})["mine"].key_required


def test_what_cannot_be_an_endpoint_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"\[providers.mine\] has no base_url"):
        endpoints(_settings(providers={"mine": {}}), {})
    with pytest.raises(ConfigurationError, match=r"default_provider is 'nobody'.*openai"):
        endpoints(_settings(default_provider="nobody"), {})
    with pytest.raises(ConfigurationError, match="no scheme"):
        endpoints(Settings(), {}, base_url="localhost:8000/v1")


def test_names_split_at_the_first_slash() -> None:
    places = DestinationRegistry(Settings(), endpoints(Settings(), {}), "openai")
    assert places.split("gpt-4.1") == ("openai", "gpt-4.1")
    assert places.split("together/meta-llama/Llama-3") == ("together", "meta-llama/Llama-3")
    assert places.split("local/demo") == ("local", "demo")
    with pytest.raises(NotFoundError, match="unknown provider 'meta-llama'"):
        places.split("meta-llama/Llama-3")
    with pytest.raises(NotFoundError, match="no model"):
        places.split("groq/")
    with pytest.raises(NotFoundError, match="unknown provider 'nobody'"):
        places.get("nobody")
    owned = DestinationRegistry(Settings(), endpoints(Settings(), {}), "openai", owns_names=True)
    assert owned.split("meta-llama/Llama-3") == ("openai", "meta-llama/Llama-3")
