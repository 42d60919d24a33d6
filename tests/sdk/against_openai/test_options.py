"""Options of clients, copies and calls: each has the same effect as with the OpenAI client."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import openai
import pytest
from both_clients import Both, Side
from loopback_server import reply

import specclient

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
FAILED = reply(500, {"error": {"message": "x"}}, {"retry-after-ms": "1"})


def chat(client: Any, **options: Any) -> Any:
    return client.chat.completions.create(**ASK, **options)


def attributes(client: Any) -> dict[str, Any]:
    """Return the public attributes of a client."""
    names = (
        "api_key",
        "admin_api_key",
        "organization",
        "project",
        "webhook_secret",
        "base_url",
        "timeout",
        "max_retries",
    )
    found = {name: getattr(client, name) for name in names}
    found["closed"] = client.is_closed()
    found["query"] = dict(client.default_query)
    found["custom"] = {
        name: value
        for name, value in client.default_headers.items()
        if name.lower().startswith(("x-mine", "openai-"))
    }
    return found


CLIENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "headers": {"default_headers": {"X-Mine": "1", "User-Agent": "me/1", "Accept": "text/plain"}},
    "custom authorization": {"default_headers": {"Authorization": "Basic abc"}},
    "query": {"default_query": {"a": 1, "b": ["x", "y"], "c": {"d": True}, "e": None}},
    "names": {"organization": "org-1", "project": "proj-1", "webhook_secret": "whsec"},
    "admin": {"admin_api_key": "sk-admin-key"},
    "timeout": {"timeout": 7},
    "no timeout": {"timeout": None},
    "httpx timeout": {"timeout": httpx.Timeout(5.0, read=7.0)},
    "retries": {"max_retries": 5},
}


@pytest.mark.parametrize("name", CLIENTS)
def test_client_options(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        side.get(chat(side.client))
        return attributes(side.client)

    both.same(scenario, **CLIENTS[name])


COPIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "key": {"api_key": "sk-other-key"},
    "names": {"organization": "org-2", "project": "proj-2", "webhook_secret": "s2"},
    "none changes nothing": {
        "api_key": None,
        "organization": None,
        "base_url": None,
        "default_headers": None,
    },
    "added headers": {"default_headers": {"X-Mine-2": "2", "x-mine": "again"}},
    "set headers": {"set_default_headers": {"X-Mine-2": "2"}},
    "no headers": {"set_default_headers": {}},
    "added query": {"default_query": {"b": 2}},
    "set query": {"set_default_query": {"b": 2}},
    "no query": {"set_default_query": {}},
    "timeout": {"timeout": 9},
    "no timeout": {"timeout": None},
    "retries": {"max_retries": 1},
    "both headers": {"default_headers": {"a": "1"}, "set_default_headers": {"b": "2"}},
    "both queries": {"default_query": {"a": "1"}, "set_default_query": {"b": "2"}},
    "unknown": {"no_such_option": 1},
}


@pytest.mark.parametrize("name", COPIES)
def test_options_of_copies(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        seen = []
        copied = side.client.with_options(**COPIES[name])
        side.get(chat(copied))
        side.get(chat(side.client))
        seen += [attributes(copied), attributes(side.client)]
        seen.append(attributes(side.client.copy(timeout=3).copy(max_retries=4)))
        return seen

    both.same(
        scenario, default_headers={"X-Mine": "1"}, default_query={"a": 1}, timeout=7, organization="org-1"
    )


CALLS: dict[str, dict[str, Any]] = {
    "headers": {"extra_headers": {"X-Mine": "call", "Authorization": "Bearer other"}},
    "omitted header": {"extra_headers": {"X-Mine": "omit"}},
    "query": {"extra_query": {"a": 2, "c": ["x"]}},
    "body": {"extra_body": {"temperature": 1, "mine": {"deep": [1]}}, "temperature": 0},
    "model in body": {"extra_body": {"model": "other"}},
    "stream in body": {"extra_body": {"stream": False}},
    "nothing given": {"extra_headers": None, "extra_query": None, "extra_body": None},
    "timeout": {"timeout": 4},
    "no timeout": {"timeout": None},
    "retry count": {"extra_headers": {"x-stainless-retry-count": "9"}},
    "null": {"temperature": None, "stop": None},
}


@pytest.mark.parametrize("name", CALLS)
def test_call_options(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        call_options = dict(CALLS[name])
        if name == "omitted header":
            call_options["extra_headers"] = {"X-Mine": side.lib.Omit(), "Accept": side.lib.omit}
        return side.get(chat(side.client, **call_options))

    both.same(scenario, default_headers={"X-Mine": "1"}, default_query={"a": 1})


def test_omitted_and_not_given_values_are_not_sent(both: Both) -> None:
    def scenario(side: Side) -> Any:
        lib = side.lib
        seen = [
            bool(lib.NOT_GIVEN),
            bool(lib.omit),
            isinstance(lib.not_given, lib.NotGiven),
            repr(lib.NOT_GIVEN),
        ]
        side.get(
            chat(
                side.client,
                temperature=lib.NOT_GIVEN,
                stop=lib.omit,
                tools=lib.not_given,
                timeout=lib.not_given,
            )
        )
        made = side.make(api_key="k", base_url=f"{side.url}/v1", timeout=lib.NOT_GIVEN)
        return [*seen, made.timeout]

    both.same(scenario)


URLS = ["/v1", "/v1/", "", "/", "/a/b/"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("kind", [str, httpx2.URL])
def test_base_urls_with_and_without_a_path_or_slash(both: Both, url: str, kind: Callable[[str], Any]) -> None:
    def scenario(side: Side) -> Any:
        client = side.make(api_key="k", base_url=kind(side.url + url), max_retries=0)
        side.get(chat(client, extra_query={"z": 1}))
        return client.base_url, type(client.base_url).__name__

    both.same(scenario)


def test_attributes_set_on_a_client_apply_to_its_later_calls(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = side.client
        copied = client.copy()
        seen = []
        for name, value in {
            "api_key": "sk-new-key",
            "base_url": f"{side.url}/other",
            "organization": "org-2",
            "project": "p-2",
            "max_retries": 1,
            "timeout": 2,
            "webhook_secret": "w",
        }.items():
            setattr(client, name, value)
            side.get(chat(client))
            seen.append(getattr(client, name))
        client.organization = None
        side.get(chat(client))
        side.get(chat(copied))
        return seen

    both.same(scenario, organization="org-1")


def test_failed_requests_are_retried_up_to_max_retries(both: Both) -> None:
    both.same(lambda side: side.get(chat(side.client)), FAILED, FAILED, max_retries=2)
    both.same(lambda side: side.get(chat(side.client)), FAILED, FAILED, max_retries=1)
    both.same(lambda side: side.get(chat(side.client.with_options(max_retries=1))), FAILED)
    both.same(lambda side: side.get(chat(side.client, stream=True)), FAILED, max_retries=1)


def test_redirects_keep_method_and_body(both: Both) -> None:
    def scenario(side: Side) -> Any:
        return side.get(chat(side.client))

    both.same(scenario, reply(307, b"", {"location": "/v2/chat/completions"}))
    both.same(scenario, reply(308, b"", {"location": "/v2/chat/completions"}))


def test_an_api_key_function_is_called_before_each_attempt(both: Both) -> None:
    def scenario(side: Side) -> Any:
        keys = iter(["k-1", "k-2", "k-3", "k-4", "k-5"])

        def fresh() -> str:
            return next(keys)

        async def afresh() -> str:
            return next(keys)

        client = side.make(
            api_key=afresh if side.is_async else fresh, base_url=f"{side.url}/v1", max_retries=1
        )
        seen = [client.api_key]
        side.get(chat(client))
        side.get(chat(client.with_options(timeout=5), stream=True))
        side.get(chat(client, extra_headers={"Authorization": "Bearer mine"}))
        side.get(chat(client.with_options(api_key="fixed")))
        return seen

    both.same(scenario, FAILED)


def test_an_error_of_an_api_key_function_is_raised(both: Both) -> None:
    def scenario(side: Side) -> Any:
        def fails() -> str:
            raise ZeroDivisionError("no key today")

        async def afails() -> str:
            raise ZeroDivisionError("no key today")

        client = side.make(
            api_key=afails if side.is_async else fails, base_url=f"{side.url}/v1", max_retries=1
        )
        side.get(chat(client))

    both.same(scenario)


def test_a_context_manager_closes_the_client(both: Both) -> None:
    def scenario(side: Side) -> Any:
        with side.within(side.make(api_key="k", base_url=f"{side.url}/v1")) as client:
            side.get(chat(client))
            seen = [client.is_closed()]
        return [*seen, client.is_closed()]

    both.same(scenario)


RESIDENCIES: list[dict[str, Any]] = [
    *({"data_residency": region} for region in ("global", "us", "eu", "ae", "au", "in", "jp")),
    {"data_residency": "moon"},
    {"data_residency": "eu", "base_url": "http://127.0.0.1:9"},
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", RESIDENCIES, ids=str)
def test_data_residency_selects_the_base_url(both: Both, options: dict[str, Any]) -> None:
    def scenario(side: Side) -> Any:
        client = side.make(api_key="k", **options)
        moved = client.with_options(base_url="http://127.0.0.1:9")
        seen = [client.base_url, moved.base_url, moved.with_options(data_residency="jp").base_url]
        client.base_url = "http://127.0.0.1:9/v2"
        return [*seen, client.base_url]

    both.same(scenario)


RETRY_HEADER = "x-stainless-retry-count"


@pytest.mark.parametrize("value", [None, "42", "", "abc"], ids=["Omit", "a number", "empty", "text"])
def test_a_retry_count_header_of_the_caller_changes_no_count(both: Both, value: str | None) -> None:
    def scenario(side: Side) -> Any:
        header = {RETRY_HEADER: side.lib.Omit() if value is None else value}
        create = side.client.chat.completions.with_raw_response.create
        response = side.get(create(**ASK, extra_headers=header))
        streamed = side.client.chat.completions.with_streaming_response.create
        with side.within(streamed(**ASK, extra_headers=header)) as unread:
            return [
                response.retries_taken,
                response.http_request.headers.get(RETRY_HEADER),
                unread.retries_taken,
            ]

    assert both.same(scenario, FAILED, FAILED, max_retries=2).result[0] == 2


def test_a_key_function_gives_the_key_that_the_client_shows(both: Both) -> None:
    def scenario(side: Side) -> Any:
        keys = iter(("sk-1", "sk-2"))

        async def later() -> str:
            return next(keys)

        source = later if side.is_async else lambda: next(keys)
        client = side.make(api_key=source, base_url=f"{side.url}/v1", max_retries=0)
        seen = [(client.api_key, dict(client.auth_headers))]
        for _ in range(2):
            side.get(chat(client))
            seen.append((client.api_key, dict(client.auth_headers)))
        return seen

    assert [key for key, _ in both.same(scenario).result] == ["", "sk-1", "sk-2"]


def test_without_pacing_a_call_after_a_429_is_sent_at_once(both: Both) -> None:
    def scenario(side: Side) -> Any:
        own = {"pacing": False} if side.ours else {}
        client = side.make(api_key="k", base_url=f"{side.url}/v1", max_retries=0, timeout=2, **own)
        with pytest.raises(side.lib.RateLimitError):
            side.get(chat(client))
        started = time.monotonic()
        side.get(chat(client))
        return time.monotonic() - started < 1.5

    limited = reply(429, {"error": {"message": "slow down"}}, {"retry-after": "30"})
    assert both.same(scenario, limited).result is True


@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "AzureOpenAI", "BedrockOpenAI"])
def test_signatures_of_clients_have_all_options(name: str) -> None:
    theirs, ours = (inspect.signature(getattr(lib, name)).parameters for lib in (openai, specclient))
    inner = {"_provider", "_region_was_explicit", "_state"}  # for copies of the original's Bedrock clients
    assert theirs.keys() - inner <= ours.keys()
    assert {each.kind for each in ours.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert "policy" in ours
    names = ("max_retries", "_strict_response_validation", "_enforce_credentials", "organization")
    assert [ours[name].default for name in names] == [theirs[name].default for name in names]
