"""Pass-through: other OpenAI routes are forwarded unchanged, and so are their responses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings
from keyed_server import KeyedServer
from loopback_server import OpenAIServer, events, reply

from specclient.config import Settings

Connect = Callable[[str], openai.OpenAI]


def test_file_requests_and_responses_are_forwarded_unchanged(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    client = connect(gateway.base_url)
    file = {
        "id": "file-1",
        "object": "file",
        "bytes": 3,
        "created_at": 1,
        "filename": "a.jsonl",
        "purpose": "batch",
    }
    openai_server.script(
        reply(200, file),
        reply(200, {"object": "list", "data": [file], "has_more": False}),
        reply(200, b"\x00\x01\xff", {"content-type": "application/octet-stream"}),
        reply(200, {"id": "file-1", "object": "file", "deleted": True}),
        reply(404, {"error": {"message": "no such file", "type": "t", "param": "id", "code": "c"}}),
    )
    assert client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch").id == "file-1"
    assert [found.id for found in client.files.list(limit=2, order="desc")] == ["file-1"]
    assert client.files.content("file-1").read() == b"\x00\x01\xff"
    assert client.files.delete("file-1").deleted
    with pytest.raises(openai.NotFoundError) as caught:
        client.files.retrieve("file 2/é")
    assert caught.value.body == {"message": "no such file", "type": "t", "param": "id", "code": "c"}
    sent = openai_server.requests
    assert [(r.method, r.path, r.query) for r in sent[:4]] == [
        ("POST", "/v1/files", ""),
        ("GET", "/v1/files", "limit=2&order=desc"),
        ("GET", "/v1/files/file-1/content", ""),
        ("DELETE", "/v1/files/file-1", ""),
    ]
    assert sent[4].path.lower() == "/v1/files/file%202%2fé".encode().decode("latin-1").replace("Ã©", "%c3%a9")
    assert sent[0].headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="purpose"' in sent[0].body
    assert all(r.headers["authorization"] == "Bearer sk-upstream" for r in sent)


def test_lines_of_a_batch_that_a_key_reads_have_its_tags(tmp_path: Path, openai_server: OpenAIServer) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [], "usage": usage}
    line = {"id": "l", "custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None}
    openai_server.script(reply(200, json.dumps(line).encode() + b"\n"))
    server = KeyedServer(openai_server, tmp_path / "keys.sqlite3")
    with server.served:
        answer = server.ask(server.make("ci", tags={"team": "x"}), "/files/file-out/content", None)
        assert answer.status_code == 200
        (row,) = server.rows()
    server.store.close()
    assert row.tags == {"key": "ci", "team": "x", "batch": "file-out"}


def test_containers_and_trainings_that_a_key_sees_are_booked_with_its_tags(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    container = {"id": "cntr-1", "object": "container", "created_at": 1_795_000_000, "memory_limit": "4g"}
    trained = {"object": "fine_tuning.job", "status": "succeeded", "model": "m", "trained_tokens": 7}
    jobs = {"object": "list", "data": [{"id": "ftjob-1", **trained}, {"id": "ftjob-2", "status": "running"}]}
    openai_server.script(reply(200, container), reply(200, jobs), reply(200, b"no JSON"))
    server = KeyedServer(openai_server, tmp_path / "keys.sqlite3")
    with server.served:
        key = server.make("ci", tags={"team": "x"})
        assert server.ask(key, "/containers", {"name": "c"}).json() == container
        assert server.ask(key, "/fine_tuning/jobs", None).json() == jobs
        assert server.ask(key, "/fine_tuning/jobs", None).content == b"no JSON"
        rows = {row.operation: row for row in server.rows()}
    server.store.close()
    assert sorted(rows) == ["container", "fine_tuning"]
    assert [row.tags for row in rows.values()] == [{"key": "ci", "team": "x"}] * 2


def test_the_query_and_beta_header_are_forwarded(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    openai_server.script(reply(200, {"id": "r", "object": "response", "output": []}))
    connect(gateway.base_url).beta.responses.create(model="m-large", input="x", betas=["some-beta"])
    (sent,) = openai_server.requests
    assert (sent.path, sent.query) == ("/v1/responses", "beta=true")
    assert sent.headers["openai-beta"] == "some-beta"


def test_a_json_request_goes_to_the_provider_named_in_its_model(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    with OpenAIServer() as other:
        tables = upstream_settings(openai_server).model_dump()["providers"]
        tables["other"] = {"base_url": other.base_url}
        other.script(reply(200, b"RIFF", {"content-type": "audio/wav"}))
        with Served(upstream_settings(openai_server, providers=tables)) as served:
            answer = connect(served.base_url).audio.speech.create(
                model="other/tts", voice="alloy", input="hi"
            )
            assert answer.read() == b"RIFF"
            assert answer.response.headers["content-type"] == "audio/wav"
        assert other.requests[0].json == {"model": "tts", "voice": "alloy", "input": "hi"}
    assert openai_server.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_form_request_is_recorded_under_its_model(
    connect: Connect, openai_server: OpenAIServer, stream: bool, tmp_path: Any
) -> None:
    done = {"type": "transcript.text.done", "text": "hi", "usage": None}
    answer = events(b"data: " + json.dumps(done).encode() + b"\n\n") if stream else reply(200, {"text": "hi"})
    openai_server.script(answer)
    with Served(upstream_settings(openai_server, ledger=str(tmp_path / "calls.sqlite3"))) as served:
        found: Any = connect(served.base_url).audio.transcriptions.create(
            file=("a.wav", b"RIFF" * 1000), model="whisper-1", stream=stream
        )
        assert [event.text for event in found] == ["hi"] if stream else found.text == "hi"
        client = served.client
    (row,) = client.ledger.rows()
    assert (row.route, row.status, row.streamed) == ("mine/whisper-1", "ok", stream)
    assert b"RIFF" * 1000 in openai_server.requests[0].body


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_an_unreadable_form_is_refused(gateway: Served, kind: str) -> None:
    request = urllib.request.Request(
        f"{gateway.base_url}/audio/transcriptions", b"no form at all", {"content-type": kind}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as answer:
        assert answer.code == 400
        assert b"the form cannot be read" in answer.read()


def test_nothing_is_forwarded_without_the_default_providers_key(connect: Connect) -> None:
    with (
        Served(Settings.model_validate({"ledger": "off"})) as served,
        pytest.raises(openai.NotFoundError, match="'openai', for which this server has no key") as caught,
    ):
        connect(served.base_url).files.list()
    assert caught.value.code == "provider_key_missing"
