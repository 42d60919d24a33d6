"""Stored responses and conversations of a server with keys: private to each key, and to the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import openai
import pytest
from keyed_server import KeyedServer
from loopback_server import OpenAIServer, reply
from stored_responses import ASK

OPERATOR = "operator-key"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server of the bundled pair and of a provider, ``mine``, with a key of its own."""
    file = tmp_path_factory.mktemp("stored") / "l.sqlite3"
    with OpenAIServer() as upstream:
        keyed = KeyedServer(upstream, file, {"local": {"threads": 1}}, key=OPERATOR)
        with keyed.served:
            yield keyed


def client_of(keyed: KeyedServer, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=keyed.served.base_url, api_key=key, max_retries=0)


def attempts(api: openai.OpenAI, response: str, talk: str, item: str) -> list[Callable[[], Any]]:
    """Return calls to what is another key's."""
    return [
        lambda: api.responses.retrieve(response),
        lambda: api.responses.input_items.list(response),
        lambda: api.responses.cancel(response),
        lambda: api.responses.delete(response),
        lambda: api.responses.create(**ASK, input="x", conversation=talk),
        lambda: api.conversations.retrieve(talk),
        lambda: api.conversations.update(talk, metadata={"a": "b"}),
        lambda: api.conversations.items.list(talk),
        lambda: api.conversations.items.create(talk, items=[{"role": "user", "content": "x"}]),
        lambda: api.conversations.items.retrieve(item, conversation_id=talk),
        lambda: api.conversations.items.delete(item, conversation_id=talk),
        lambda: api.conversations.delete(talk),
    ]


def test_a_key_cannot_read_use_change_or_delete_what_is_anothers(keyed: KeyedServer) -> None:
    ann = client_of(keyed, keyed.make("ann", models=("local/*",)))
    others = [client_of(keyed, keyed.make("bob")), client_of(keyed, OPERATOR)]
    mine = ann.responses.create(**ASK, input="def f(x):")
    talk = ann.conversations.create(items=[{"role": "user", "content": "def g(x):"}])  # a limited key: here
    assert talk.id.startswith("conv_local_")
    (item,) = ann.conversations.items.list(talk.id)
    assert item.id is not None
    for other in others:
        for attempt in attempts(other, mine.id, talk.id, item.id):
            with pytest.raises(openai.NotFoundError) as caught:
                attempt()
            assert caught.value.code is None
            assert "not found" in str(caught.value)
        with pytest.raises(openai.BadRequestError) as refused:
            other.responses.create(**ASK, input="x", previous_response_id=mine.id)
        assert refused.value.code == "previous_response_not_found"
    assert ann.responses.retrieve(mine.id).output_text == mine.output_text
    assert len(ann.conversations.items.list(talk.id).data) == 1


def test_a_new_key_of_a_revoked_ones_name_does_not_read_its_responses(keyed: KeyedServer) -> None:

    first = client_of(keyed, keyed.make("carl"))
    mine = first.responses.create(**ASK, input="def f(x):")
    keyed.store.revoke("carl", datetime.now(UTC))
    with pytest.raises(openai.NotFoundError):
        client_of(keyed, keyed.make("carl")).responses.retrieve(mine.id)


def test_ids_and_conversations_of_the_provider_are_passed_to_it(keyed: KeyedServer) -> None:
    operator, upstream = client_of(keyed, OPERATOR), keyed.upstream
    body = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {"a": "b"}}
    upstream.script(reply(200, body))
    assert operator.conversations.create(metadata={"a": "b"}).id == "conv_1"
    assert upstream.requests[-1].json == {"metadata": {"a": "b"}}
    upstream.script(reply(404, {"error": {"message": "no", "type": "invalid_request_error"}}))
    with pytest.raises(openai.NotFoundError):
        operator.responses.retrieve("resp_67ab")
    assert upstream.requests[-1].path == "/v1/responses/resp_67ab"
    here: Any = {"specclient": {"provider": "local"}}
    assert operator.conversations.create(extra_body=here).id.startswith("conv_local_")


def test_odd_requests_are_refused(keyed: KeyedServer) -> None:
    def send(verb: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {OPERATOR}"}
        url = keyed.served.base_url + path
        return httpx.request(verb, url, headers=headers, trust_env=False, **options)

    talk = send("POST", "/conversations", json={"specclient": {"provider": "local"}}).json()["id"]
    for verb, path, options, status in (
        ("GET", "/responses/resp_local_1?stream=maybe", {}, 400),
        ("GET", "/responses/resp_local_1?starting_after=x&stream=true", {}, 400),
        ("GET", f"/conversations/{talk}/items?limit=many", {}, 400),
        ("GET", f"/conversations/{talk}/items?include[]=all", {}, 400),
        ("POST", f"/conversations/{talk}", {"content": b"[]"}, 400),
        ("POST", f"/conversations/{talk}", {"json": {"metadata": {"a": 1}}}, 400),
        ("POST", f"/conversations/{talk}/items", {"json": {}}, 400),
        ("POST", f"/conversations/{talk}/items", {"json": {"items": [1]}}, 400),
        ("PUT", f"/conversations/{talk}", {"json": {}}, 405),
        ("GET", "/responses/resp_local_%2e%2e", {}, 404),
        ("DELETE", f"/conversations/{talk}/items/msg_1", {}, 404),
    ):
        answer = send(verb, path, **options)
        assert answer.status_code == status, (verb, path, answer.text)
        assert answer.json()["error"]["message"]
