"""URLs belong to the provider at whose base URL they are."""

from __future__ import annotations

import httpx
import pytest

import specclient
from specclient.config import Settings
from specclient.official_client.origins import HomeOrigins

PROVIDERS = {
    "one": {"base_url": "https://a.test/v1/"},
    "deep": {"base_url": "https://a.test/v1/deep"},
    "port": {"base_url": "http://a.test:8080/v1?version=2"},
}


@pytest.fixture
def origins() -> HomeOrigins:
    client = specclient.OpenAI(config=Settings.model_validate({"ledger": "off", "providers": PROVIDERS}))
    return HomeOrigins(lambda: client.pipeline.destinations)


@pytest.mark.parametrize(
    ("url", "name", "path", "query"),
    [
        ("https://a.test/v1/chat/completions", "one", "/chat/completions", ""),
        ("https://A.test:443/v1/files?limit=2", "one", "/files", "limit=2"),
        ("https://a.test/v1/deep/models/a%2Fb", "deep", "/models/a%2Fb", ""),
        ("http://a.test:8080/v1/models?x=1", "port", "/models", "x=1"),
        ("https://api.openai.com/v1/models", "openai", "/models", ""),
        ("https://api.groq.com/openai/v1/models", "groq", "/models", ""),
    ],
)
def test_a_url_below_a_base_url_is_found(
    origins: HomeOrigins, url: str, name: str, path: str, query: str
) -> None:
    found = origins.find(httpx.URL(url))
    assert found is not None
    assert (found.endpoint.name, found.path, found.query) == (name, path, query)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/v1/models",
        "https://a.test:8443/v1/models",
        "https://a.test/v2/models",
        "https://a.test/v1x/models",
        "https://a.test.evil.test/v1/models",
        "https://evil.test/https://a.test/v1/models",
        "https://a.test@evil.test/v1/models",
    ],
)
def test_any_other_url_is_not(origins: HomeOrigins, url: str) -> None:
    assert origins.find(httpx.URL(url)) is None


def test_openais_address_is_home_wherever_the_settings_have_openai() -> None:
    settings = Settings.model_validate(
        {"ledger": "off", "providers": {"openai": {"base_url": "https://proxy.test/v1"}}}
    )
    client = specclient.OpenAI(config=settings)
    found = HomeOrigins(lambda: client.pipeline.destinations).find(httpx.URL("https://api.openai.com/v1/x"))
    assert found is not None
    assert (found.endpoint.base_url, found.moved) == ("https://proxy.test/v1", True)


def test_a_client_with_a_base_url_of_its_own_has_one_provider() -> None:
    client = specclient.OpenAI(api_key="k", base_url="https://a.test/v1", ledger="off")
    origins = HomeOrigins(lambda: client.pipeline.destinations)
    assert origins.find(httpx.URL("https://api.groq.com/openai/v1/models")) is None
    client.base_url = "https://b.test/v1"  # a changed option counts at once
    assert origins.find(httpx.URL("https://a.test/v1/models")) is None
    assert origins.find(httpx.URL("https://b.test/v1/models")) is not None
