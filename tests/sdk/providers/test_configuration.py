"""The endpoints of a client: their keys, URLs, prices and names."""

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


def test_keys_are_read_from_the_environment_variable_of_each_provider() -> None:
    known = endpoints(Settings(), {"OPENAI_API_KEY": "sk-o", "GOOGLE_API_KEY": "g", "OPENAI_ORG_ID": "org"})
    assert set(known) == set(PRESETS)
    assert (_key(known["openai"]), _key(known["gemini"]), _key(known["groq"])) == ("sk-o", "g", None)
    assert known["openai"].organization == "org"
    assert "sk-o" not in repr(known)


def test_options_of_the_client_apply_to_the_default_provider_only() -> None:
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


def test_the_price_provider_is_that_of_the_url() -> None:
    assert endpoints(Settings(), {})["openai"].price_provider == "openai"
    at = {"OPENAI_BASE_URL": "https://api.groq.com/openai/v1/"}
    elsewhere = endpoints(Settings(), {}, base_url=at["OPENAI_BASE_URL"])["openai"]
    assert elsewhere.price_provider == PRESETS["groq"].price_provider
    assert endpoints(Settings(), at)["openai"].price_provider == PRESETS["groq"].price_provider
    elsewhere = endpoints(Settings(), {}, base_url="http://127.0.0.1:9/v1")["openai"]
    assert elsewhere.price_provider == ANY_VENDOR


def test_a_custom_base_url_requires_no_key() -> None:
    assert endpoints(Settings(), {})["openai"].key_required
    assert not endpoints(Settings(), {}, base_url="http://127.0.0.1:9/v1")["openai"].key_required
    assert not endpoints(Settings(), {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})["openai"].key_required


def test_tables_of_the_configuration_define_and_change_providers() -> None:
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


def test_invalid_endpoints_raise_and_name_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"\[providers.mine\] has no base_url"):
        endpoints(_settings(providers={"mine": {}}), {})
    with pytest.raises(ConfigurationError, match=r"default_provider is 'nobody'.*openai"):
        endpoints(_settings(default_provider="nobody"), {})
    with pytest.raises(ConfigurationError, match="no scheme"):
        endpoints(Settings(), {}, base_url="localhost:8000/v1")


def test_model_names_are_split_at_the_first_slash() -> None:
    registry = DestinationRegistry(Settings(), endpoints(Settings(), {}), "openai")
    assert registry.split("gpt-4.1") == ("openai", "gpt-4.1")
    assert registry.split("together/meta-llama/Llama-3") == ("together", "meta-llama/Llama-3")
    assert registry.split("local/demo") == ("local", "demo")
    with pytest.raises(NotFoundError, match="unknown provider 'meta-llama'"):
        registry.split("meta-llama/Llama-3")
    with pytest.raises(NotFoundError, match="no model"):
        registry.split("groq/")
    with pytest.raises(NotFoundError, match=r"unknown provider 'opnai'.*did you mean 'openai/gpt'"):
        registry.split("opnai/gpt")
    with pytest.raises(NotFoundError, match="unknown provider 'nobody'"):
        registry.get("nobody")
    owned = DestinationRegistry(Settings(), endpoints(Settings(), {}), "openai", owns_names=True)
    assert owned.split("meta-llama/Llama-3") == ("openai", "meta-llama/Llama-3")
