"""Every API of the server with a key that has a budget: what is reserved is what the upstream may bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from keyed_server import KeyedServer
from loopback_server import OpenAIServer

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
CLAUDE = {**CHAT, "model": "anthropic/claude-x", "max_tokens": 9}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
GEMINI = "/v1beta/models/gemini/gemini-x:generateContent"
OLLAMA = {**CHAT, "model": "mine/m-large", "stream": False}
GENERATE = {"prompt": "x", "model": "mine/m-large", "stream": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server whose providers of all kinds are one upstream, at eight dollars a million tokens."""
    price = {"input": 2, "output": 8}
    models = ("mine/m-large", "mine/gpt-5-x", "mine/m-dear", "anthropic/claude-x", "gemini/gemini-x")
    with OpenAIServer() as upstream:
        providers = {
            "mine": {"base_url": upstream.base_url, "api_key": "sk-mine"},
            "anthropic": {"base_url": upstream.base_url, "api_key": "sk-ant"},
            "gemini": {"base_url": f"{upstream.url}/v1beta", "api_key": "sk-gem"},
        }
        tables = {"providers": providers, "prices": dict.fromkeys(models, price)}
        file = tmp_path_factory.mktemp("ledger") / "keys.sqlite3"
        server = KeyedServer(upstream, Path(file), tables)
        try:
            with server.served:
                yield server
        finally:
            server.store.close()


def _ask(home: KeyedServer, key: str, path: str, body: Any) -> httpx.Response:
    """Send a body, once, with an answer that no form of an API takes for one: what is sent is what counts."""
    home.upstream.requests.clear()
    headers = {"authorization": f"Bearer {key}", "x-goog-api-key": key}
    return httpx.post(home.served.url + path, json=body, headers=headers, timeout=60, trust_env=False)


def _key(home: KeyedServer, dollars: str, **granted: Any) -> str:
    _key.made = getattr(_key, "made", 0) + 1  # type: ignore[attr-defined]
    return home.make(f"key{_key.made}", usd=Decimal(dollars), **granted)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "body", "limits"),
    [
        ("/v1/chat/completions", {**CHAT, "model": "mine/m-large"}, {"max_tokens": 4096}),
        ("/v1/chat/completions", {**CHAT, "model": "mine/gpt-5-x"}, {"max_completion_tokens": 4096}),
        ("/v1/chat/completions", {**CHAT, "model": "mine/m-large", "max_tokens": -1}, {"max_tokens": 4096}),
        ("/v1/completions", {"prompt": "x", "model": "mine/m-large"}, {"max_tokens": 16}),
        ("/v1/responses", {"input": "x", "model": "mine/m-large"}, {"max_output_tokens": 4096}),
        ("/api/chat", OLLAMA, {"max_tokens": 4096}),
        ("/api/chat", {**OLLAMA, "options": {"num_predict": -1}}, {"max_tokens": 4096}),
        ("/api/generate", GENERATE, {"max_tokens": 4096}),
        ("/v1/messages", {**CLAUDE, "max_tokens": 0}, {"max_tokens": 4096}),
        ("/v1/chat/completions", {**CHAT, "model": "anthropic/claude-x"}, {"max_tokens": 4096}),
        ("/v1/messages", {**CLAUDE, "model": "mine/m-large", "max_tokens": 7}, {"max_tokens": 7}),
    ],
)
def test_an_answer_is_sent_with_the_limit_that_is_reserved(
    home: KeyedServer, path: str, body: dict[str, Any], limits: dict[str, int]
) -> None:
    _ask(home, _key(home, "1"), path, body)
    sent = home.upstream.requests[0].json
    assert {name: value for name, value in sent.items() if "max" in name or "predict" in name} == limits


@pytest.mark.parametrize("settings", [{}, {"maxOutputTokens": 0}, {"max_output_tokens": "-1"}])
def test_content_is_sent_with_the_limit_that_is_reserved(home: KeyedServer, settings: dict[str, Any]) -> None:
    _ask(home, _key(home, "1"), GEMINI, {**CONTENTS, **({"generationConfig": settings} if settings else {})})
    assert home.upstream.requests[0].json["generationConfig"] == {"maxOutputTokens": 4096}


EVASIONS: list[tuple[str, dict[str, Any]]] = [
    # a limit under another provider's name, or in its settings
    ("/v1/chat/completions", {"model": "gemini/gemini-x", "max_tokens": 1,
                              "generationConfig": {"maxOutputTokens": 60_000}}),
    ("/v1/chat/completions", {"model": "gemini/gemini-x", "max_tokens": 1, "max_output_tokens": 60_000}),
    ("/v1/chat/completions", {"model": "gemini/gemini-x", "max_tokens": 400, "candidateCount": 8}),
    ("/v1/chat/completions", {"model": "mine/m-large", "max_tokens": 1, "max_new_tokens": 60_000}),
    ("/v1/chat/completions", {"model": "mine/m-large", "n_predict": 60_000}),
    ("/v1/completions", {"model": "mine/m-large", "prompt": "x", "max_tokens": 5, "n_predict": 60_000}),
    ("/v1/messages", {**CLAUDE, "max_tokens": 60_000}),
    ("/v1/messages", {**CLAUDE, "model": "mine/m-large", "max_tokens": 60_000}),
    (GEMINI, {**CONTENTS, "generationConfig": {"maxOutputTokens": 60_000}}),
    (GEMINI, {**CONTENTS, "generation_config": {"max_output_tokens": "60000"}}),
    (GEMINI, {**CONTENTS, "generationConfig": {"candidateCount": 8, "maxOutputTokens": 400}}),
    ("/api/chat", {**OLLAMA, "options": {"num_predict": 60_000}}),
    ("/api/chat", {**OLLAMA, "options": {"num_predict": 5, "n_predict": 60_000}}),
    ("/api/generate", {**GENERATE, "options": {"num_predict": 5, "max_new_tokens": 60_000}}),
    # a prompt whose tokens an estimate takes for fewer
    ("/v1/chat/completions", {"model": "mine/m-large", "max_tokens": 1,
                              "messages": [{"role": "user", "content": "xqzjkvwp" * 700}]}),
    ("/v1/messages", {**CLAUDE, "system": "xqzjkvwp" * 700}),
    (GEMINI, {**CONTENTS, "generationConfig": {"maxOutputTokens": 1},
              "systemInstruction": {"parts": [{"text": "xqzjkvwp" * 700}]}}),
    ("/api/generate", {**GENERATE, "system": "xqzjkvwp" * 700, "options": {"num_predict": 1}}),
    ("/v1/embeddings", {"model": "mine/m-large", "input": ["xqzjkvwp" * 100] * 7}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), EVASIONS, ids=lambda each: str(each)[:70])
def test_no_field_of_any_api_passes_the_budget(home: KeyedServer, path: str, body: dict[str, Any]) -> None:
    given = {**CHAT, **body} if path == "/v1/chat/completions" else body
    answer = _ask(home, _key(home, "0.01"), path, given)
    assert answer.status_code == 429, answer.text
    assert home.upstream.requests == []


UNBOUNDED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/messages", {**CLAUDE, "tools": [{"type": "web_search_20250305", "name": "x"}]}, "web_search"),
    ("/v1/messages", {**CLAUDE, "tools": [{"type": "code_execution_20250825", "name": "x"}]}, "code"),
    ("/v1/messages", {**CLAUDE, "mcp_servers": [{"type": "url", "name": "x"}]}, "mcp"),
    ("/v1/messages", {**CLAUDE, "speed": "fast"}, "speed"),
    ("/v1/messages", {**CLAUDE, "inference_geo": "us"}, "inference_geo"),
    ("/v1/messages", {**CLAUDE, "fallbacks": [{"model": "claude-dear"}]}, "fallbacks"),
    (GEMINI, {**CONTENTS, "tools": [{"googleSearch": {}}]}, "googleSearch"),
    (GEMINI, {**CONTENTS, "tools": [{"google_search": {}}]}, "google"),
    (GEMINI, {**CONTENTS, "tools": [{"functionDeclarations": [], "urlContext": {}}]}, "urlContext"),
    (GEMINI, {**CONTENTS, "tools": [{"codeExecution": {}}]}, "codeExecution"),
    (GEMINI, {**CONTENTS, "cachedContent": "cachedContents/1"}, "cachedContent"),
    (GEMINI, {**CONTENTS, "cached_content": "cachedContents/1"}, "cached"),
    (GEMINI, {**CONTENTS, "serviceTier": "priority"}, "serviceTier"),
    (GEMINI, {"contents": [{"parts": [{"fileData": {"fileUri": "https://youtu.be/x"}}]}]}, "file"),
    ("/v1/chat/completions", {**CHAT, "model": "gemini/gemini-x", "tools": [{"googleSearch": {}}]}, "google"),
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-large", "service_tier": "priority"}, "service_tier"),
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-large", "models": ["m-dear"]}, "models"),
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-large", "search_parameters": {"mode": "on"}}, "sea"),
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-large:online"}, "mine/m-large:online"),
    ("/v1/responses", {"model": "mine/m-large", "input": "x", "service_tier": "priority"}, "service_tier"),
    ("/api/chat", {**OLLAMA, "models": ["m-dear"]}, "models"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "why"), UNBOUNDED, ids=lambda each: str(each)[:70])
def test_what_a_provider_bills_besides_tokens_is_refused(
    home: KeyedServer, path: str, body: dict[str, Any], why: str
) -> None:
    limits = {GEMINI: {"generationConfig": {"maxOutputTokens": 1}}, "/api/chat": {}}
    answer = _ask(home, _key(home, "100"), path, {**limits.get(path, {"max_tokens": 1}), **body})
    assert answer.status_code == 429, answer.text
    assert why.lower() in answer.text.lower()
    assert home.upstream.requests == []


FORBIDDEN: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-dear"}),
    ("/v1/chat/completions", {**CHAT, "model": "mine/m-large", "models": ["m-dear"]}),
    ("/v1/chat/completions", {**CHAT, "model": "dear"}),
    ("/v1/messages", {**CLAUDE, "model": "mine/m-dear"}),
    ("/v1/messages", {**CLAUDE, "model": "claude-x"}),
    ("/v1/messages/count_tokens", {**CLAUDE, "model": "anthropic/claude-x"}),
    ("/v1beta/models/mine/m-dear:generateContent", CONTENTS),
    ("/v1beta/models/mine%2Fm-dear:generateContent", CONTENTS),
    ("/v1beta/models/mine/m-large:generateContent", {**CONTENTS, "specclient": {"draft": "mine/m-dear"}}),
    ("/v1beta/models/gemini/gemini-x:countTokens", CONTENTS),
    ("/api/chat", {**OLLAMA, "model": "mine/m-dear"}),
    ("/api/chat", {**OLLAMA, "model": "mine/m-dear:latest"}),
    ("/api/generate", {**GENERATE, "model": "mine/m-dear"}),
    ("/api/show", {"model": "mine/m-dear"}),
    ("/v1/responses", {"model": "mine/m-dear", "input": "x"}),
]


@pytest.mark.parametrize(("path", "body"), FORBIDDEN, ids=lambda each: str(each)[:70])
def test_no_api_serves_a_model_that_the_key_may_not_use(
    home: KeyedServer, path: str, body: dict[str, Any]
) -> None:
    """Also not by an alias of the key, which is only a further name."""
    key = _key(home, "100", models=("mine/m-large",), aliases=(("dear", "mine/m-dear"),))
    answer = _ask(home, key, path, body)
    assert answer.status_code in (400, 404), answer.text
    assert "m-dear" not in json.dumps([each.json for each in home.upstream.requests])
    assert home.upstream.requests == []
