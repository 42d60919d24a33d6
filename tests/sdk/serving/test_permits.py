"""Permits of keys and of ``serve --model``: no policy, strategy or field reaches a forbidden model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from failover_servers import answering, status
from keyed_server import BODY, KeyedServer
from loopback_server import OpenAIServer, reply
from strategy_servers import verifying

SMALL, DEAR = "mine/m-small", "dear/pro"
AUTO = {**BODY, "model": "auto"}


@contextmanager
def gateway(
    folder: Path, *, models: tuple[str, ...] = (), default: str | None = None, **tables: Any
) -> Iterator[Any]:
    """Open a server before ``mine`` and ``dear``; ``dear`` is cheaper, so that every policy prefers it.

    Args:
        models: those of ``serve --model``.
        default: the name of the policy of calls without one.
        tables: tables that replace those of the settings.
    """
    with OpenAIServer(answering()) as mine, OpenAIServer(answering()) as dear:
        home = KeyedServer(
            mine,
            folder / "keys.sqlite3",
            {
                "candidates": [SMALL, DEAR],
                "providers": {
                    "mine": {"base_url": mine.base_url, "api_key": "k", "models": ["m-large", "m-small"]},
                    "dear": {"base_url": dear.base_url, "api_key": "k", "models": ["pro"]},
                },
                "prices": {
                    "mine/*": {"input": 5, "output": 5},
                    "dear/*": {"input": 1, "output": 1},
                },
                **tables,
            },
            models=models,
            policy=default,
        )
        try:
            with home.served:
                yield home, mine, dear
        finally:
            home.store.close()


def policy(**fields: Any) -> dict[str, Any]:
    return {**AUTO, "specclient": {"policy": fields}}


STEERED: list[dict[str, Any]] = [
    {},
    {"minimize": "cost"},
    {"minimize": "latency"},
    {"allow": ["dear/"]},
    {"deny": ["mine/"]},
    {"hedge": 1.0, "explore": 1.0},
    {"strategy": "prediction"},
    {"fallbacks": [DEAR]},
    {"fallbacks": ["dear/other"]},
    {"fallbacks": [DEAR], "allow": ["mine/"]},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", STEERED, ids=str)
def test_no_policy_reaches_a_candidate_that_the_key_may_not_use(
    tmp_path: Path, fields: dict[str, Any], stream: bool
) -> None:
    with gateway(tmp_path) as (home, mine, dear):
        key = home.make(models=["auto", "mine/*"])
        mine.script(*[status(500)] * 4)  # so that failover looks for another route
        for _ in range(6):
            home.ask(key, body={**policy(**fields), "stream": stream})
        assert dear.requests == []


@pytest.mark.parametrize("fields", STEERED, ids=str)
def test_no_policy_reaches_a_model_that_is_not_served(tmp_path: Path, fields: dict[str, Any]) -> None:
    with gateway(tmp_path, models=("auto", SMALL)) as (home, mine, dear):
        mine.script(*[status(500)] * 4)
        for _ in range(6):
            home.ask("", body=policy(**fields))
        assert dear.requests == []
        assert {request.json["model"] for request in mine.requests} <= {"m-small"}


def test_a_forbidden_fallback_does_not_exist(tmp_path: Path) -> None:
    with gateway(tmp_path) as (home, mine, dear):
        key = home.make(models=["auto", "mine/*"])
        answer = home.ask(key, body=policy(fallbacks=[SMALL, DEAR]))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert answer.json()["error"]["param"] == "specclient.policy.fallbacks"
        assert mine.requests == dear.requests == []
        mine.script(status(500))
        assert home.ask(key, body=policy(fallbacks=["mine/m-large"])).status_code == 200


def test_auto_chooses_among_the_candidates_of_the_key_and_shows_no_other(tmp_path: Path) -> None:
    with gateway(tmp_path) as (home, mine, dear):
        free, key = home.make("free"), home.make(models=["auto", "mine/*"])
        assert home.ask(free, body=AUTO).status_code == 200
        assert (len(mine.requests), len(dear.requests)) == (0, 1)
        answer = home.ask(key, body={**AUTO, "specclient": {"meta": True}})
        assert (answer.status_code, len(mine.requests), len(dear.requests)) == (200, 1, 1)
        assert DEAR not in answer.text
        none = home.make("none", models=["auto", "other/*"])
        refused = home.ask(none, body=AUTO)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert (len(mine.requests), len(dear.requests)) == (1, 1)


def test_a_session_does_not_lead_to_a_route_of_another_key(tmp_path: Path) -> None:
    with gateway(tmp_path) as (home, mine, dear):
        free, key = home.make("free"), home.make(models=["auto", "mine/*"])
        body = {**AUTO, "specclient": {"session": "s"}}
        assert home.ask(free, body=body).status_code == 200
        assert len(dear.requests) == 1
        assert home.ask(key, body=body).status_code == 200
        assert (len(mine.requests), len(dear.requests)) == (1, 1)


def test_a_key_for_auto_alone_gets_what_the_policies_of_the_server_choose(tmp_path: Path) -> None:
    policies = {"dearer": {"deny": ["dear/"]}, "backed": {"fallbacks": ["dear/backup"]}}
    tables = {"candidates": [SMALL, DEAR, "dear/mini"], "policies": policies}
    with gateway(tmp_path, default="dearer", **tables) as (home, mine, dear):
        key = home.make(models=["auto"])
        assert home.models(key) == ["auto"]
        assert home.ask(key, body=AUTO).status_code == 200
        assert [request.json["model"] for request in mine.requests] == ["m-small"]
        for model in (SMALL, "m-small", DEAR):
            assert home.ask(key, body={**BODY, "model": model}).status_code == 404
        for fields in ({"fallbacks": [DEAR]}, {"allow": ["dear/"]}, {"deny": ["mine/"]}):
            answer = home.ask(key, body=policy(**fields))
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "specclient.policy")
        assert dear.requests == []
        drafted = home.ask(key, body={**AUTO, "specclient": {"draft": DEAR, "strategy": "prediction"}})
        assert (drafted.status_code, drafted.json()["error"]["param"]) == (404, "specclient.draft")
        mine.script(status(500))
        assert home.ask(key, body={**AUTO, "specclient": {"policy": "backed"}}).status_code == 200
        assert {request.json["model"] for request in dear.requests} <= {"pro", "mini", "backup"}
        assert dear.requests != []


def test_a_policy_of_the_caller_does_not_lift_the_exclusions_of_the_server(tmp_path: Path) -> None:
    with gateway(tmp_path, policies={"own": {"deny": ["dear/"]}}, default="own") as (home, mine, dear):
        key = home.make(models=["auto"])
        for fields in ({}, {"minimize": "cost"}, {"minimize": "latency", "hedge": 1.0}):
            assert home.ask(key, body=policy(**fields)).status_code == 200
        assert (len(mine.requests), dear.requests) == (3, [])


@pytest.mark.parametrize("allowed", [["auto", "mine/*"], ["mine/*"]])
def test_a_configured_pair_does_not_draft_with_a_forbidden_model(tmp_path: Path, allowed: list[str]) -> None:
    """A draft is a call: with the pair, the gateway would answer with ``dear`` and let ``mine`` verify."""
    with OpenAIServer(verifying()) as mine, OpenAIServer(answering()) as dear:
        tables = {
            "candidates": [SMALL],
            "policies": {"drafted": {"strategy": "prediction", "draft": DEAR}},
            "pairs": {"p": {"target": SMALL, "draft": DEAR, "acceptance": 0.99}},
            "providers": {
                "mine": {"base_url": mine.base_url, "api_key": "k", "capabilities": {"prediction": True}},
                "dear": {"base_url": dear.base_url, "api_key": "k"},
            },
            "prices": {"mine/*": {"input": 5, "output": 5}, "dear/*": {"input": 1, "output": 1}},
        }
        home = KeyedServer(mine, tmp_path / "keys.sqlite3", tables)
        with home.served:
            key = home.make(models=allowed)
            named = {"strategy": "prediction", "draft": DEAR}
            for body in (
                {**AUTO, "specclient": {"policy": "drafted"}},
                policy(minimize="latency"),
                {**BODY, "model": SMALL, "specclient": named},
                {**AUTO, "specclient": named},
            ):
                for _ in range(3):
                    home.ask(key, body=body)
            assert dear.requests == []
            assert (mine.requests != []) is ("auto" in allowed)
        home.store.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("models", ["pro"]),
        ("fallbacks", ["dear/pro"]),
        ("preset", "@preset/pro"),
        ("extra_body", {"model": "pro"}),
    ],
)
def test_fields_of_providers_that_name_further_models_are_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    for place, limits in enumerate(({}, {"models": (SMALL,)})):
        folder = tmp_path / str(place)
        folder.mkdir()
        with gateway(folder, **limits) as (home, mine, dear):
            key = home.make(models=[SMALL])
            answer = home.ask(key, body={**BODY, "model": SMALL, field: value})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
            assert mine.requests == dear.requests == []


def test_a_tool_of_the_provider_names_no_forbidden_model(tmp_path: Path) -> None:
    with gateway(tmp_path) as (home, mine, _):
        key = home.make(models=[SMALL])
        tools = [{"type": "image_generation", "model": "gpt-image-1"}]
        answer = home.ask(key, "/responses", {"model": SMALL, "input": "x", "tools": tools})
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "tools[0].model")
        assert mine.requests == []


def test_no_fallback_loads_a_folder_of_the_machine(tmp_path: Path) -> None:
    """An engine itself accepts any folder with a checkpoint; a server serves only its own models."""
    with gateway(tmp_path) as (home, mine, _):
        mine.script(*[status(500)] * 4)  # the client retries twice
        answer = home.ask("", body=policy(fallbacks=[f"local/{tmp_path}"], allow=["mine/", "local/"]))
        assert answer.status_code >= 400
        assert home.served.client.pipeline.destinations.get("local").state() == []


def test_the_model_of_a_form_is_the_one_that_is_checked(tmp_path: Path) -> None:
    """The form of a limited key is encoded anew, so that the provider reads the fields that were checked."""

    def part(head: str, value: str) -> str:
        return f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n"

    audio = part('name="file"; filename="a.wav"', "RIFF")
    with gateway(tmp_path) as (home, mine, _):
        key = home.make(models=["mine/m-*"])
        headers = {"content-type": "multipart/form-data; boundary=x"}
        for form in (
            part('name="model"; filename="m"', "m-small") + audio,
            part('name="model[]"', "m-small") + audio,
            audio,
            part('name="model"', "m-small") + part('name="file"', "text"),
        ):
            url = f"{home.served.base_url}/audio/transcriptions"
            answer = home.post(key, url, form + "--x--\r\n", headers)
            assert answer.status_code == 400, form
        assert mine.requests == []
        mine.script(reply(200, {"text": "hi"}))
        files = {"file": ("a.wav", b"RIFF", "audio/wav")}
        good = home.upload(key, "/audio/transcriptions", {"model": "mine/m-small", "prompt": "p"}, files)
        assert good.status_code == 200
        (sent,) = mine.requests
        assert sent.body.count(b'name="model"') == 1
        assert b"\r\n\r\nm-small\r\n" in sent.body
        assert b'filename="a.wav"' in sent.body


@pytest.mark.parametrize("field", ["allow", "deny", "fallbacks"])
@pytest.mark.parametrize(
    "routes", [["mine/x"] * 65, ["mine/" + "x" * 600], [["x"]]], ids=["many", "long", "array"]
)
def test_the_routes_in_a_policy_are_limited(tmp_path: Path, field: str, routes: list[str]) -> None:
    with gateway(tmp_path) as (home, _, _):
        answer = home.ask("", body=policy(**{field: routes}))
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "specclient.policy")
        assert "at most 64, texts of at most 512 characters" in error["message"]


@pytest.mark.parametrize(
    "fields",
    [{"policy": {"minimize": ["x" * 20_000]}}, {"strategy": "x" * 20_000}],
    ids=["policy", "strategy"],
)
def test_a_large_policy_or_strategy_is_not_shown_in_the_error(tmp_path: Path, fields: dict[str, Any]) -> None:
    with gateway(tmp_path) as (home, _, _):
        answer = home.ask("", body={**BODY, "model": "auto", "specclient": fields})
        error = answer.json()["error"]
        assert answer.status_code == 400
        assert len(error["message"]) < 200, error["message"][:300]
        assert "at most 10000 characters" in error["message"]


@pytest.mark.parametrize("path", ["/chat/completions", "/audio/speech"])
def test_the_query_names_no_model(tmp_path: Path, path: str) -> None:
    with gateway(tmp_path) as (home, mine, _):
        key = home.make(models=[SMALL])
        answer = home.ask(key, f"{path}?model=m-large", {**BODY, "model": SMALL, "input": "x", "voice": "v"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        assert mine.requests == []
