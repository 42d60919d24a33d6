"""Aliases at the server: of the configuration and of keys, in calls, forms, lists and rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_server import Served, upstream_settings
from keyed_server import BODY, KeyedServer
from loopback_server import OpenAIServer, reply

from specclient.ledger.sqlite import SQLiteStore
from specclient.serving.keys.key import digest_of
from specclient.serving.keys.store import KeyStore

ALIASES = {
    "gpt-4o": "mine/m-large",
    "gpt-4*": "mine/m-small",
    "best": "auto",
    "tiny": "local/demo",
    "whisper-1": "m-large",
}
ROWS = {"gpt-4o": "mine/m-large", "best": "auto", "tiny": "local/demo", "whisper-1": "mine/m-large"}


@pytest.fixture
def home(openai_server: OpenAIServer, tmp_path: Path) -> Iterator[KeyedServer]:
    found = KeyedServer(
        openai_server, tmp_path / "keys.sqlite3", {"aliases": ALIASES, "local": {"threads": 1}}
    )
    with found.served:
        yield found
    found.store.close()


def ask(home: KeyedServer, key: str, model: str, path: str = "/chat/completions", **more: Any) -> Any:
    return home.ask(key, path, {**BODY, "model": model, **more})


def test_an_alias_is_served_and_both_names_are_recorded(home: KeyedServer) -> None:
    key = home.make()
    for model, sent in (("gpt-4o", "m-large"), ("gpt-4-turbo", "m-small"), ("best", "m-small")):
        answer = ask(home, key, model)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == home.upstream.requests[-1].json["model"] == sent
    recorded = {(row.model, row.route) for row in home.rows()}
    assert recorded == {
        ("gpt-4o", "mine/m-large"),
        ("gpt-4-turbo", "mine/m-small"),
        ("best", "mine/m-small"),
    }


def test_responses_of_the_engine_and_bare_names_take_aliases(home: KeyedServer) -> None:
    body = {"model": "tiny", "input": "hello", "max_output_tokens": 4}
    answer = home.ask(home.make(), "/responses", body).json()
    assert answer["object"] == "response"
    assert answer["model"] == "tiny"
    assert home.ask("", "/models/demo", None).status_code == 401  # a key exists


def test_anthropics_messages_take_aliases_also_of_the_vendors_own_names(home: KeyedServer) -> None:
    key = home.make("own", aliases={"claude-*": "mine/m-small", "counted": "best"})
    body = {"messages": BODY["messages"], "max_tokens": 5}
    for model, sent in (("gpt-4o", "m-large"), ("claude-sonnet-4-0", "m-small")):
        answer = home.ask(key, "/messages", {**body, "model": model})
        assert answer.status_code == 200, answer.text
        assert home.upstream.requests[-1].json["model"] == sent
    counted = home.ask(key, "/messages/count_tokens", {"messages": body["messages"], "model": "counted"})
    assert counted.json()["input_tokens"] > 0


def test_the_list_shows_aliases_with_their_models_as_far_as_a_key_may_use_them(home: KeyedServer) -> None:
    key = home.make()
    rows = {row["id"]: row for row in home.ask(key, "/models", None).json()["data"]}
    assert {name: row["alias_of"] for name, row in rows.items() if "alias_of" in row} == ROWS
    assert rows["gpt-4o"]["owned_by"] == "mine"
    assert home.ask(key, "/models/tiny", None).json() == rows["tiny"]
    assert set(home.models(home.make("local", models=("local/*",)))) == {
        "local/demo",
        "local/demo-target",
        "tiny",
    }


def test_rules_of_a_key_are_checked_against_what_is_served(home: KeyedServer) -> None:
    small = home.make("small", models=("mine/m-small",))
    assert ask(home, small, "gpt-4-turbo").status_code == 200
    for model in ("gpt-4o", "tiny", "mine/m-large"):
        refused = ask(home, small, model)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    named = home.make("named", models=("gpt-4o", "gpt-4-turbo"))
    assert ask(home, named, "gpt-4o").status_code == 404  # the alias's name is no permission
    assert ask(home, named, "gpt-4-turbo").status_code == 404
    auto = home.make("auto", models=("auto",))
    assert ask(home, auto, "best").status_code == 200


def test_aliases_of_a_key_precede_the_others_and_are_its_own(home: KeyedServer) -> None:
    own = home.make("own", aliases={"gpt-4o": "mine/m-small", "mini": "gpt-4o", "odd": "nowhere/x"})
    other = home.make("other")
    assert ask(home, own, "gpt-4o").json()["model"] == "m-small"
    assert ask(home, own, "mini").json()["model"] == "m-small"
    assert ask(home, other, "gpt-4o").json()["model"] == "m-large"
    refused = ask(home, own, "odd")
    assert (refused.status_code, "alias 'odd'" in refused.json()["error"]["message"]) == (404, True)
    assert "mini" in home.models(own)
    assert "mini" not in home.models(other)
    assert "odd" not in home.models(own)
    confined = home.make("confined", models=("mine/m-small",), aliases={"x": "mine/m-large"})
    assert ask(home, confined, "x").status_code == 404
    paced = home.make("paced", tokens_per_minute=1000, aliases={"x": "mine/m-large"})
    assert ask(home, paced, "x").status_code == 200


def test_a_forms_model_is_replaced_by_its_alias(home: KeyedServer) -> None:
    home.upstream.script(reply(body={"text": "hello"}))
    answer = home.upload(
        home.make(), "/audio/transcriptions", {"model": "whisper-1"}, {"file": ("a.wav", b"RIFF")}
    )
    assert answer.status_code == 200, answer.text
    sent = home.upstream.requests[-1].body
    assert b"m-large" in sent
    assert b"whisper-1" not in sent


def test_served_models_are_served_under_their_aliases_alone(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    found = KeyedServer(openai_server, tmp_path / "k", {"aliases": ALIASES}, models=("mine/m-large",))
    with found.served:
        assert ask(found, "", "gpt-4o").json()["model"] == "m-large"
        assert ask(found, "", "m-large").status_code == 200
        assert ask(found, "", "gpt-4-turbo").status_code == 404
        assert ask(found, "", "best").status_code == 404
        assert found.models("") == ["mine/m-large", "gpt-4o", "whisper-1"]


def test_a_bare_name_that_several_providers_serve_is_refused_with_all(openai_server: OpenAIServer) -> None:
    mine = {"base_url": openai_server.base_url, "api_key": "k"}
    settings = upstream_settings(
        openai_server,
        providers={"mine": {**mine, "models": ["m-large"]}, "more": {**mine, "models": ["demo", "only"]}},
    )
    with Served(settings) as served:
        url = f"{served.base_url}/chat/completions"
        refused = httpx.post(url, json={**BODY, "model": "demo"}, trust_env=False)
        assert refused.status_code == 404
        assert "local/demo, more/demo" in refused.json()["error"]["message"]
        assert httpx.post(url, json={**BODY, "model": "only"}, trust_env=False).json()["model"] == "only"


def test_a_table_of_keys_without_aliases_is_upgraded(tmp_path: Path) -> None:
    database = SQLiteStore(str(tmp_path / "old"))
    columns = (
        "digest TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, "
        "created_at TEXT NOT NULL, expires_at TEXT, revoked_at TEXT, used_at TEXT, budget_nano BIGINT, "
        "period TEXT NOT NULL, requests_per_minute BIGINT, tokens_per_minute BIGINT, models TEXT NOT NULL, "
        "tags TEXT NOT NULL"
    )

    def old(execute: Any) -> None:
        execute(f"CREATE TABLE server_keys ({columns})")
        execute("CREATE TABLE server_keys_schema (version INTEGER NOT NULL)")
        execute("INSERT INTO server_keys_schema VALUES (1)")
        at = datetime.now(UTC).isoformat()
        execute(
            "INSERT INTO server_keys (digest, name, prefix, created_at, period, models, tags) "
            "VALUES (:digest, 'old', 'sk-sc-', :at, 'total', '[]', '{}')",
            {"digest": digest_of("token"), "at": at},
        )

    database.transact(old)
    database.close()
    store = KeyStore(SQLiteStore(str(tmp_path / "old")))
    (key,) = store.all()
    store.close()
    assert (key.name, key.aliases, key.model_aliases) == ("old", {}, None)
