"""A custom HTTP client (httpx or httpx2): the same requests, timeouts and errors in both libraries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest
from both_clients import Both, Side
from loopback_server import OpenAIServer, reply

import specclient

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m-large",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "mocked"}}],
}
VENDORS = pytest.mark.parametrize("vendor", [httpx, httpx2], ids=lambda vendor: vendor.__name__)


def make_http_client(side: Side, vendor: Any, **options: Any) -> Any:
    return (vendor.AsyncClient if side.is_async else vendor.Client)(**options)


def close_http_client(side: Side, client: Any) -> None:
    side.get(client.aclose() if side.is_async else client.close())


@VENDORS
def test_a_custom_http_client_sends_requests_and_stays_open(both: Both, vendor: Any) -> None:
    def scenario(side: Side) -> Any:
        own = make_http_client(side, vendor, headers={"X-Client": "own"}, params={"p": "1"})
        client = side.make(api_key="k", base_url=f"{side.url}/v1", http_client=own, max_retries=0)
        seen = [
            side.get(client.chat.completions.create(**ASK)),
            side.get(client.chat.completions.create(**ASK, stream=True)),
        ]
        raw = side.get(client.models.with_raw_response.list())
        seen += [type(raw.http_response).__name__, raw.status_code, client.is_closed()]
        close_http_client(side, own)
        return [*seen, client.is_closed()]

    both.same(scenario)


def mock_transport(vendor: Any, seen: list[Any], *answers: Any) -> Any:
    """Return a transport that appends each request to ``seen`` and responds without a network."""
    left = list(answers)

    def handle(request: Any) -> Any:
        seen.append(
            [
                request.method,
                str(request.url),
                request.headers.get("authorization"),
                request.headers.get("x-stainless-retry-count"),
                json.loads(request.content) if request.content else None,
                request.extensions["timeout"],
            ]
        )
        answer = left.pop(0) if left else ANSWER
        if isinstance(answer, Exception):
            raise answer
        return vendor.Response(*answer) if isinstance(answer, tuple) else vendor.Response(200, json=answer)

    return vendor.MockTransport(handle)


@VENDORS
def test_a_mock_transport_receives_the_same_requests(both: Both, vendor: Any) -> None:
    def scenario(side: Side) -> Any:
        seen: list[Any] = []
        own = make_http_client(
            side, vendor, transport=mock_transport(vendor, seen, (500, {"retry-after-ms": "1"}))
        )
        client = side.make(api_key="k", base_url="https://api.test/v1", http_client=own, max_retries=1)
        answer = side.get(client.chat.completions.create(**ASK))
        close_http_client(side, own)
        return [answer, seen]

    both.same(scenario)


TIMEOUTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}, {}),
    "client": ({"timeout": 3}, {}, {}),
    "client: none": ({"timeout": None}, {}, {}),
    "HTTP client": ({}, {"timeout": 11}, {}),
    "HTTP client: none": ({}, {"timeout": None}, {}),
    "client and HTTP client": ({"timeout": 3}, {"timeout": 11}, {}),
    "call": ({"timeout": 3}, {}, {"timeout": 1.5}),
    "call: none": ({"timeout": 3}, {}, {"timeout": None}),
    "call: parts": ({}, {}, {"timeout": httpx.Timeout(9, connect=2)}),
}


@VENDORS
@pytest.mark.parametrize("name", TIMEOUTS)
def test_timeouts_of_call_client_and_http_client_have_the_same_precedence(
    both: Both, vendor: Any, name: str
) -> None:
    options, http_options, call = TIMEOUTS[name]

    def scenario(side: Side) -> Any:
        seen: list[Any] = []
        own = make_http_client(side, vendor, transport=mock_transport(vendor, seen), **http_options)
        client = side.make(api_key="k", base_url="https://api.test/v1", http_client=own, **options)
        side.get(client.chat.completions.create(**ASK, **call))
        side.get(client.get("/x", cast_to=object, options=call))
        close_http_client(side, own)
        limits = [{name: part and float(part) for name, part in request[-1].items()} for request in seen]
        return [client.timeout, limits]

    both.same(scenario)


FAILURES: dict[str, Callable[[Any], Exception]] = {
    "connect": lambda vendor: vendor.ConnectError("refused"),
    "read": lambda vendor: vendor.ReadError("broken"),
    "connect timeout": lambda vendor: vendor.ConnectTimeout("slow"),
    "read timeout": lambda vendor: vendor.ReadTimeout("slow"),
    "pool timeout": lambda vendor: vendor.PoolTimeout("full"),
    "protocol": lambda vendor: vendor.RemoteProtocolError("nonsense"),
}


@VENDORS
@pytest.mark.parametrize("name", FAILURES)
def test_network_errors_raise_the_same_connection_errors(both: Both, vendor: Any, name: str) -> None:
    def scenario(side: Side) -> Any:
        seen: list[Any] = []
        failures = [FAILURES[name](vendor) for _ in range(4)]
        own = make_http_client(side, vendor, transport=mock_transport(vendor, seen, *failures))
        client = side.make(api_key="k", base_url="https://api.test/v1", http_client=own, max_retries=0)
        try:
            side.get(client.chat.completions.create(**ASK))
        finally:
            close_http_client(side, own)

    happened = both.same(scenario)
    assert happened.error is not None
    assert "APIConnectionError" in happened.error["classes"]


@pytest.mark.parametrize(
    "name",
    ["DefaultHttpxClient", "DefaultAsyncHttpxClient", "DefaultHttpx2Client", "DefaultAsyncHttpx2Client"],
)
def test_default_http_clients_have_the_same_settings(name: str) -> None:
    import openai

    kinds = []
    for lib in (openai, specclient):
        client = getattr(lib, name)(timeout=3)
        other = getattr(lib, name)()
        kinds.append(
            [
                {part: float(value) for part, value in client.timeout.as_dict().items()},
                {part: float(value) for part, value in other.timeout.as_dict().items()},
                other.follow_redirects,
                hasattr(other, "aclose"),
            ]
        )
    assert kinds[0] == kinds[1]


def test_the_default_aiohttp_client_makes_calls() -> None:
    both = Both(is_async=True)

    def scenario(side: Side) -> Any:
        own = side.lib.DefaultAioHttpClient()
        client = side.make(api_key="k", base_url=f"{side.url}/v1", http_client=own)
        answer = side.get(client.chat.completions.create(**ASK))
        side.get(own.aclose())
        return answer

    both.same(scenario)


def test_keys_are_not_sent_after_a_redirect_to_another_origin(both: Both) -> None:
    def scenario(side: Side) -> Any:
        side.get(side.client.chat.completions.create(**ASK))

    with OpenAIServer() as other:
        other.script(reply(200, ANSWER), reply(200, ANSWER))
        both.same(scenario, reply(307, b"", {"location": f"{other.url}/v1/chat/completions"}))
        assert [request.headers.get("authorization") for request in other.requests] == [None, None]
        assert [request.json for request in other.requests] == [ASK, ASK]


@VENDORS
def test_a_custom_http_client_does_not_send_azure_keys_to_another_origin(both: Both, vendor: Any) -> None:
    def scenario(side: Side) -> Any:
        own = make_http_client(side, vendor, follow_redirects=True)
        options = {"azure_endpoint": side.url, "api_key": "az-secret-key", "api_version": "1"}
        client = side.make("AzureOpenAI", http_client=own, **options)
        side.get(client.chat.completions.create(**ASK))
        close_http_client(side, own)

    with OpenAIServer() as other:
        other.script(reply(200, ANSWER), reply(200, ANSWER))
        both.same(scenario, reply(307, b"", {"location": f"{other.url}/v1/chat/completions"}))
        assert [request.headers.get("api-key") for request in other.requests] == [None, None]


@pytest.mark.parametrize("client", [None, httpx, httpx2], ids=str)
@pytest.mark.parametrize("follow", [True, False, None])
def test_a_call_by_path_can_disable_redirects(both: Both, follow: bool | None, client: Any) -> None:
    def scenario(side: Side) -> Any:
        own = None if client is None else make_http_client(side, client)
        chosen = side.make(api_key="k", base_url=f"{side.url}/v1", max_retries=0, http_client=own)
        try:
            return side.get(chosen.get("/x", cast_to=object, options={"follow_redirects": follow}))
        finally:
            if own is not None:
                close_http_client(side, own)

    both.same(scenario, reply(307, b"", {"location": "/v1/models"}))
