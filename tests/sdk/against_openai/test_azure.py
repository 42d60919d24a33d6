"""Azure clients: the same URLs, credentials, copies and errors as the OpenAI package's Azure clients."""

from __future__ import annotations

from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import reply

ASK: dict[str, Any] = {"model": "gpt 4/x", "messages": [{"role": "user", "content": "hi"}]}
ANY = reply(200, {"id": "1", "object": "list", "data": [{"id": "x", "embedding": [1.5]}], "choices": []})


def make_azure(side: Side, **options: Any) -> Any:
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


def call_endpoints(side: Side, client: Any) -> list[Any]:
    """Call endpoints that belong to a deployment and endpoints that do not."""
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
def test_options_have_the_same_effect(both: Both, name: str) -> None:
    both.same(lambda side: call_endpoints(side, make_azure(side, **OPTIONS[name])), *[ANY] * 8)


@pytest.mark.parametrize("path", ["/openai/v1", "/openai/deployments/dep", "/openai/deployments/dep/"])
def test_a_base_url_replaces_the_endpoint(both: Both, path: str) -> None:
    both.same(
        lambda side: call_endpoints(side, make_azure(side, azure_endpoint=None, base_url=side.url + path)),
        *[ANY] * 8,
    )


def test_the_endpoint_may_end_in_a_slash(both: Both) -> None:
    both.same(lambda side: call_endpoints(side, make_azure(side, azure_endpoint=side.url + "/")), *[ANY] * 8)


@pytest.mark.parametrize("kind", ["azure_ad_token_provider", "api_key"])
def test_credential_functions_are_called_before_each_attempt(both: Both, kind: str) -> None:
    def scenario(side: Side) -> Any:
        tokens = iter(["t-1", "t-2", "t-3", "t-4"])

        def fresh() -> str:
            return next(tokens)

        async def afresh() -> str:
            return next(tokens)

        source = afresh if side.is_async else fresh
        client = make_azure(side, **{"api_key": None, kind: source, "max_retries": 1})
        side.get(client.chat.completions.create(**ASK))
        side.get(client.with_options(timeout=3).chat.completions.create(**ASK))

    both.same(scenario, reply(500, b"", {"retry-after-ms": "1"}), ANY, ANY)


def test_an_async_client_accepts_a_synchronous_token_provider(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = make_azure(side, api_key=None, azure_ad_token_provider=lambda: "plain-token")
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
def test_options_of_copies_have_the_same_effect(both: Both, name: str, deployment: str | None) -> None:
    def scenario(side: Side) -> Any:
        client = make_azure(side, azure_deployment=deployment, default_query={"x": 1})
        copied = client.with_options(**COPIES[name])
        side.get(copied.chat.completions.create(**ASK))
        side.get(copied.models.list())
        return [copied.base_url, copied.max_retries, type(copied).__name__]

    both.same(scenario, ANY, ANY)


def test_a_copy_with_another_base_url_sends_its_requests_there(both: Both) -> None:
    def scenario(side: Side) -> Any:
        copied = make_azure(side).with_options(base_url=f"{side.url}/elsewhere")
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
def test_invalid_options_raise_the_same_error(both: Both, name: str) -> None:
    happened = both.same(lambda side: make_azure(side, **BAD[name]))
    assert happened.error is not None


def test_environment_variables_set_the_options(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_credentials_are_not_sent_after_a_redirect_to_another_origin(both: Both) -> None:
    from loopback_server import OpenAIServer

    with OpenAIServer() as other:

        def scenario(side: Side) -> Any:
            side.get(make_azure(side).chat.completions.create(**ASK))

        other.script(ANY, ANY)
        both.same(scenario, reply(307, b"", {"location": f"{other.url}/there"}))
        assert [request.headers.get("api-key") for request in other.requests] == [None, None]
        assert [request.headers.get("authorization") for request in other.requests] == [None, None]


def test_a_token_provider_that_returns_a_number_raises_the_same_error(both: Both) -> None:
    both.same(
        lambda side: side.get(
            make_azure(side, api_key=None, azure_ad_token_provider=lambda: 3).chat.completions.create(**ASK)
        )
    )


@pytest.mark.parametrize("deployment", [None, "dep"])
def test_calls_by_path_go_to_the_deployment_of_their_model(both: Both, deployment: str | None) -> None:
    def scenario(side: Side) -> Any:
        client = make_azure(side, azure_deployment=deployment)
        for path in ("/chat/completions", "/embeddings", "/responses", "/models"):
            side.get(client.post(path, cast_to=object, body={"model": "m", "x": 1}))
        if deployment is None:
            client.base_url = f"{side.url}/other/"
            side.get(client.post("/chat/completions", cast_to=object, body={"model": "m"}))
            side.get(client.chat.completions.create(**ASK))

    paths = [request["path"] for request in both.same(scenario, *[ANY] * 6).sent]
    assert paths[0].endswith(f"/deployments/{deployment or 'm'}/chat/completions")
