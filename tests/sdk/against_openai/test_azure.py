"""Azure's clients: the same URLs, keys, copies and refusals as the OpenAI client's."""

from __future__ import annotations

from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import reply

ASK: dict[str, Any] = {"model": "gpt 4/x", "messages": [{"role": "user", "content": "hi"}]}
ANY = reply(200, {"id": "1", "object": "list", "data": [{"id": "x", "embedding": [1.5]}], "choices": []})


def azure(side: Side, **options: Any) -> Any:
    return side.make(
        "AzureOpenAI",
        **{
            "azure_endpoint": side.url,
            "api_key": "az-key-1",
            "api_version": "2024-10-21",
            "max_retries": 0,
            **options,
        },
    )


def walk(side: Side, client: Any) -> list[Any]:
    """Call what goes to a deployment, and what does not."""
    side.get(client.chat.completions.create(**ASK))
    side.get(client.chat.completions.with_raw_response.create(**ASK))
    side.get(client.completions.create(model="m", prompt="x", stream=False))
    side.get(client.embeddings.create(model="m", input="x"))
    side.get(client.images.generate(model="m", prompt="x"))
    side.get(client.responses.create(model="m", input="x"))
    side.get(client.models.list())
    side.get(client.files.list(purpose="batch"))
    return [client.base_url, dict(client.default_query), client.max_retries]


OPTIONS: dict[str, dict[str, Any]] = {
    "endpoint": {},
    "deployment": {"azure_deployment": "dep 1"},
    "token": {"api_key": None, "azure_ad_token": "ad-token"},
    "query": {"default_query": {"x": 1}},
    "names": {"organization": "org", "project": "p", "default_headers": {"X-Mine": "1"}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_clients(both: Both, name: str) -> None:
    both.same(lambda side: walk(side, azure(side, **OPTIONS[name])), *[ANY] * 8)


@pytest.mark.parametrize("path", ["/openai/v1", "/openai/deployments/dep", "/openai/deployments/dep/"])
def test_base_url(both: Both, path: str) -> None:
    both.same(lambda side: walk(side, azure(side, azure_endpoint=None, base_url=side.url + path)), *[ANY] * 8)


def test_the_endpoint_may_end_in_a_slash(both: Both) -> None:
    both.same(lambda side: walk(side, azure(side, azure_endpoint=side.url + "/")), *[ANY] * 8)


@pytest.mark.parametrize("kind", ["azure_ad_token_provider", "api_key"])
def test_functions_are_asked_before_each_try(both: Both, kind: str) -> None:
    def scenario(side: Side) -> Any:
        tokens = iter(["t-1", "t-2", "t-3", "t-4"])

        def fresh() -> str:
            return next(tokens)

        async def afresh() -> str:
            return next(tokens)

        source = afresh if side.is_async else fresh
        client = azure(side, **{"api_key": None, kind: source, "max_retries": 1})
        side.get(client.chat.completions.create(**ASK))
        side.get(client.with_options(timeout=3).chat.completions.create(**ASK))

    both.same(scenario, reply(500, b"", {"retry-after-ms": "1"}), ANY, ANY)


def test_a_token_provider_of_an_async_client_may_be_plain(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = azure(side, api_key=None, azure_ad_token_provider=lambda: "plain-token")
        side.get(client.chat.completions.create(**ASK))

    both.same(scenario, ANY)


COPIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "key": {"api_key": "az-key-2"},
    "token": {"azure_ad_token": "ad-token"},
    "version": {"api_version": "2025-01-01"},
    "query": {"default_query": {"y": 2}},
    "set query": {"set_default_query": {"y": 2}},
    "headers": {"default_headers": {"X-Mine": "2"}},
    "timeout": {"timeout": 3, "max_retries": 1},
    "unknown": {"nonsense": 1},
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("deployment", [None, "dep"])
def test_copies(both: Both, name: str, deployment: str | None) -> None:
    def scenario(side: Side) -> Any:
        client = azure(side, azure_deployment=deployment, default_query={"x": 1})
        copied = client.with_options(**COPIES[name])
        side.get(copied.chat.completions.create(**ASK))
        side.get(copied.models.list())
        return [copied.base_url, copied.max_retries, type(copied).__name__]

    both.same(scenario, ANY, ANY)


def test_a_copy_at_another_url(both: Both) -> None:
    def scenario(side: Side) -> Any:
        copied = azure(side).with_options(base_url=f"{side.url}/elsewhere")
        side.get(copied.chat.completions.create(**ASK))
        return copied.base_url

    both.same(scenario, ANY)


BAD: dict[str, dict[str, Any]] = {
    "two credentials": {"azure_ad_token": "t"},
    "two functions": {"azure_ad_token_provider": lambda: "x"},
    "no credentials": {"api_key": None},
    "no version": {"api_version": None},
    "no endpoint": {"azure_endpoint": None},
    "both": {"base_url": "https://x.test"},
    "unknown": {"nonsense": 1},
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", BAD)
def test_bad_options(both: Both, name: str) -> None:
    happened = both.same(lambda side: azure(side, **BAD[name]))
    assert happened.error is not None


def test_the_environment(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "env-key")
    monkeypatch.setenv("OPENAI_API_VERSION", "2023-05-15")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-azure")

    def scenario(side: Side) -> Any:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", side.url)
        side.get(side.make("AzureOpenAI").chat.completions.create(**ASK))
        monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "env-token")
        side.get(side.make("AzureOpenAI").chat.completions.create(**ASK))
        side.get(side.make("AzureOpenAI", api_key="given").chat.completions.create(**ASK))
        monkeypatch.delenv("AZURE_OPENAI_AD_TOKEN")

    both.same(scenario, ANY, ANY, ANY)


def test_the_key_is_not_sent_to_another_origin(both: Both) -> None:
    from loopback_server import OpenAIServer

    with OpenAIServer() as other:

        def scenario(side: Side) -> Any:
            side.get(azure(side).chat.completions.create(**ASK))

        other.script(ANY, ANY)
        both.same(scenario, reply(307, b"", {"location": f"{other.url}/there"}))
        assert [request.headers.get("api-key") for request in other.requests] == [None, None]
        assert [request.headers.get("authorization") for request in other.requests] == [None, None]


def test_a_token_that_is_none(both: Both) -> None:
    both.same(
        lambda side: side.get(
            azure(side, api_key=None, azure_ad_token_provider=lambda: 3).chat.completions.create(**ASK)
        )
    )
