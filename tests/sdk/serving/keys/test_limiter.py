"""A server with stored keys: authentication, permitted models, labels, budgets and rate limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from gateway_server import upstream_settings
from keyed_server import BODY, KeyedServer
from loopback_server import OpenAIServer, hang, reply

from specclient.budgets.budgets import Budgets
from specclient.ledger.ledger import Ledger
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.serving.keys import limiter
from specclient.serving.keys.key import new_token

#: The cost of one such call: 4 prompt tokens at 2 dollars per million, 9 completion tokens at 8.
COST = Decimal("0.00008")
LONG = [{"role": "user", "content": "fox " * 1000}]


@pytest.fixture
def open_server(openai_server: OpenAIServer, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def opened(**options: Any) -> Iterator[KeyedServer]:
        found = KeyedServer(openai_server, tmp_path / "keys.sqlite3", **options)
        try:
            with found.served:
                yield found
        finally:
            found.store.close()

    return opened


def _error(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def test_stored_keys_work_until_revoked_and_the_operators_key_always(open_server: Callable[..., Any]) -> None:
    with open_server(key="operator") as server:
        assert server.ask("").status_code == 401
        alice, bob = server.make("alice"), server.make("bob")
        assert [server.ask(key).status_code for key in (alice, bob, "operator")] == [200, 200, 200]
        server.store.revoke("alice", datetime.now(UTC))
        refused = server.ask(alice)
        assert (refused.status_code, _error(refused)["code"]) == (401, "invalid_api_key")
        assert alice not in refused.text
        assert refused.headers["www-authenticate"] == "Bearer"
        assert [server.ask(key).status_code for key in (bob, "operator", alice[:-1])] == [200, 200, 401]
        assert server.ask("é").status_code == 401
        assert server.ask(bob.upper()).status_code == 401


def test_an_open_server_requires_a_key_after_the_first_is_created(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        assert server.ask("").status_code == 200
        key = server.make()
        assert [server.ask("").status_code, server.ask(key).status_code] == [401, 200]
        server.store.revoke("alice", datetime.now(UTC))
        assert server.ask("").status_code == 401


def test_calls_carry_their_keys_labels_which_cannot_be_forged(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        key = server.make(tags={"team": "web"})
        forged = {"tags": {"key": "bob", "team": "ops", "own": "x"}, "session": "s-1"}
        server.ask(key, body={**BODY, "specclient": forged})
        server.ask(key, "/embeddings", {"model": "mine/m-large", "input": "x"})
        first, second = server.rows()
        assert first.tags == {"key": "alice", "team": "web", "own": "x"}
        assert first.session == "s-1"
        assert first.cost == COST
        assert second.tags == {"key": "alice", "team": "web"}
        sent = server.upstream.requests[0].json
        assert "specclient" not in sent


@pytest.mark.parametrize("session", ["", 5, "x" * 600])
def test_an_invalid_session_is_refused(open_server: Callable[..., Any], session: Any) -> None:
    with open_server() as server:
        answer = server.ask("", body={**BODY, "specclient": {"session": session}})
        assert (answer.status_code, _error(answer)["param"]) == (400, "specclient.session")


def test_a_model_the_key_may_not_use_is_not_found(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        key = server.make(models=["mine/m-l*"])
        assert server.models(key) == ["mine/m-large"]
        assert server.ask(key, "/models/mine/m-large", None).status_code == 200
        assert server.ask(key, "/models/mine/m-small", None).status_code == 404
        for model in ("mine/m-small", "m-small", "auto", "local/demo", "nobody/x"):
            answer = server.ask(key, body={**BODY, "model": model})
            assert (answer.status_code, _error(answer)["code"]) == (404, "model_not_found"), model
        drafted = server.ask(key, body={**BODY, "specclient": {"draft": "mine/m-small"}})
        assert (drafted.status_code, _error(drafted)["param"]) == (404, "specclient.draft")
        more = server.ask(key, body={**BODY, "models": ["m-small"]})
        assert (more.status_code, _error(more)["param"]) == (400, "models")
        assert [
            server.ask(key, body={**BODY, "model": m}).status_code for m in ("mine/m-large", "m-large")
        ] == [
            200,
            200,
        ]
        assert [request.json["model"] for request in server.upstream.requests] == ["m-large", "m-large"]


def test_a_key_with_limits_cannot_use_uncounted_endpoints(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        free, kept = server.make("free"), server.make("kept", usd=Decimal(5))
        for verb_body in ({}, None):
            answer = server.ask(kept, "/files" if verb_body is None else "/batches", verb_body)
            assert (answer.status_code, _error(answer)["code"]) == (403, "not_permitted")
        assert server.upstream.requests == []
        server.ask(free, "/files", None)
        assert len(server.upstream.requests) == 1
        figures = [
            httpx.get(
                f"{server.served.url}/metrics", headers={"authorization": f"Bearer {key}"}, trust_env=False
            )
            for key in (free, kept)
        ]
        assert [answer.status_code for answer in figures] == [200, 403]


def test_a_spent_budget_refuses_with_openais_error(
    open_server: Callable[..., Any], connect: Callable[[str], openai.OpenAI]
) -> None:
    with open_server() as server:
        key, other = server.make(usd=Decimal("0.0002"), period="day"), server.make("bob")
        answers = [server.ask(key) for _ in range(4)]
        refused = answers[-1]
        assert (refused.status_code, refused.headers["x-should-retry"]) == (429, "false")
        error = _error(refused)
        assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert "budget 'key alice'" in error["message"]
        assert "It resets at" in error["message"]
        served = sum(answer.status_code == 200 for answer in answers)
        assert len(server.upstream.requests) == served >= 1
        assert server.ask(other).status_code == 200
        client = connect(server.served.base_url).with_options(api_key=key, max_retries=2)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**BODY)
        assert caught.value.code == "insufficient_quota"
        assert len(server.upstream.requests) == served + 1, "the client does not retry"
        unpriced = server.ask(key, body={**BODY, "model": "mine/unheard-of"})
        assert unpriced.status_code == 429


def test_concurrent_calls_never_exceed_the_budget(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        key = server.make(usd=Decimal("0.001"))
        with ThreadPoolExecutor(16) as threads:
            codes = list(threads.map(lambda _: server.ask(key).status_code, range(40)))
        assert set(codes) == {200, 429}
        assert codes.count(200) == len(server.upstream.requests)
        (key_,) = server.store.all()
        ledger = Ledger(str(server.file))
        (standing,) = Budgets(
            [key_.budget], Prices(upstream_settings(server.upstream)), Estimator(), ledger
        ).standings()
        ledger.close()
        assert standing.spent == codes.count(200) * int(COST * 10**9) <= 10**6
        assert standing.reserved == 0


def test_requests_per_minute_are_counted_and_reported_in_headers(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        key, free = server.make(requests_per_minute=3), server.make("bob")
        assert server.ask(key, "/models", None).headers["x-ratelimit-remaining-requests"] == "3"
        upstream_headers = {f"x-ratelimit-{what}": "77777" for what in ("remaining-requests", "limit-tokens")}
        server.upstream.script(*[reply(200, server.ask(free).json(), upstream_headers)] * 3)
        answers = [server.ask(key) for _ in range(3)]
        assert [each.headers["x-ratelimit-remaining-requests"] for each in answers] == ["2", "1", "0"]
        assert not any("x-ratelimit-limit-tokens" in each.headers for each in answers), (
            "the upstream's limits, which belong to the operator"
        )
        refused = server.ask(key)
        error = _error(refused)
        assert (refused.status_code, error["type"], error["code"]) == (429, "requests", "rate_limit_exceeded")
        assert 1 <= int(refused.headers["retry-after"]) <= 61
        assert refused.headers["x-ratelimit-limit-requests"] == "3"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
        assert "x-ratelimit-limit-tokens" not in refused.headers
        assert len(server.upstream.requests) == 4
        assert "x-ratelimit-limit-requests" not in server.ask(free).headers


def test_tokens_per_minute_are_reserved_before_and_corrected_after_a_call(
    open_server: Callable[..., Any],
) -> None:
    with open_server() as server:
        key = server.make(tokens_per_minute=1000)
        first = server.ask(key, body={**BODY, "max_tokens": 900})
        held = int(first.headers["x-ratelimit-remaining-tokens"])
        assert first.status_code == 200
        assert 0 < held < 100
        answer = server.ask(key, "/models", None)
        assert answer.headers["x-ratelimit-remaining-tokens"] == str(1000 - 13), (
            "4 prompt tokens, 9 completion tokens"
        )
        stream = server.ask(key, body={**BODY, "max_tokens": 900, "stream": True})
        assert stream.text.endswith("data: [DONE]\n\n")
        assert server.ask(key, "/models", None).headers["x-ratelimit-remaining-tokens"] == str(1000 - 26)
        large = server.ask(key, body={**BODY, "max_tokens": 1001})
        assert (large.status_code, large.headers["x-should-retry"]) == (429, "false")
        server.upstream.script(reply(400, {"error": {"message": "no"}}))
        assert server.ask(key).status_code == 400
        assert server.ask(key, "/models", None).headers["x-ratelimit-remaining-tokens"] == str(1000 - 26)


def test_short_prompts_are_counted_without_a_thread_once_the_tokenizer_is_loaded(
    open_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    count = limiter.run_in_thread

    async def noted(work: Callable[[], Any]) -> Any:
        threads.append("one")
        return await count(work)

    monkeypatch.setattr(limiter, "run_in_thread", noted)
    with open_server() as server:
        key = server.make(tokens_per_minute=100_000)
        held = [int(server.ask(key).headers["x-ratelimit-remaining-tokens"]) for _ in range(3)]
        assert len(threads) == 1
        assert len({before - after for before, after in pairwise(held)}) == 1
        assert server.ask(key, body={**BODY, "messages": LONG}).status_code == 200
        assert len(threads) == 2


def test_tokens_of_unfinished_calls_stay_reserved(open_server: Callable[..., Any]) -> None:
    with open_server() as server:
        key = server.make(tokens_per_minute=1000)
        server.upstream.script(hang)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{server.served.base_url}/chat/completions", json={**BODY, "max_tokens": 900}, timeout=0.5,
                headers={"authorization": f"Bearer {key}"}, trust_env=False,
            )  # fmt: skip
        refused = server.ask(key, body={**BODY, "max_tokens": 900})
        assert (refused.status_code, _error(refused)["type"]) == (429, "tokens"), (
            "the abandoned call may have been served"
        )


def test_a_key_appears_in_no_log_response_or_database(
    open_server: Callable[..., Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with open_server() as server:
        key = server.make(requests_per_minute=2, usd=Decimal(1))
        stranger = new_token()
        server.upstream.script(reply(500, {"error": {"message": "no"}}))
        answers = [
            server.ask(each, body=body) for each in (key, stranger) for body in (BODY, [], {**BODY, "n": "x"})
        ]
        responses = json.dumps([[answer.text, dict(answer.headers)] for answer in answers])
        assert server.rows()
        held = b"".join(path.read_bytes() for path in server.file.parent.glob("keys.sqlite3*"))
    out, err = capfd.readouterr()
    for token in (key, stranger):
        secret = token[12:]
        assert secret not in responses + caplog.text + out + err
        assert secret.encode() not in held
    sent = json.dumps(
        [[dict(request.headers), request.body.decode()] for request in server.upstream.requests]
    )
    assert key[12:] not in sent


@pytest.mark.parametrize("kind", ["; boundary=x", "; boundary=y; boundary=x"])
def test_a_form_with_two_models_or_boundaries_is_refused(open_server: Any, kind: str) -> None:
    """An upstream that reads the other model or boundary would serve a model that the key may not use."""

    def part(name: str, value: str) -> str:
        return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'

    with open_server() as found:
        key = found.make(models=("m-large",))
        for models in (["m-large"], ["m-small", "m-large"], ["m-large", "m-small"]):
            form = "".join(part("model", model) for model in models) + "--x--\r\n"
            headers = {"authorization": f"Bearer {key}", "content-type": f"multipart/form-data{kind}"}
            answer = httpx.post(
                f"{found.served.base_url}/audio/transcriptions", content=form, headers=headers
            )
            good = len(models) == 1 and kind.count("boundary") == 1
            assert (answer.status_code == 400) is not good
        assert len(found.upstream.requests) == (kind.count("boundary") == 1)
