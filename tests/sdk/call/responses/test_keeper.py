"""Which responses are stored, and what happens where nothing can be stored."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, events, reply
from stored_responses import ASK, local_settings

import specclient

HOSTED: Any = {"object": "response", "created_at": 1, "status": "completed", "model": "m"}
SAID: Any = {"id": "msg_9", "type": "message", "role": "assistant", "status": "completed"}
SAID |= {"content": [{"type": "output_text", "text": "Ulm", "annotations": []}]}


@pytest.mark.parametrize("tables", [{"ledger": "off"}, {"stored": {"enabled": False}}])
def test_nothing_is_stored_where_storing_is_off(tmp_path: Path, tables: Any) -> None:
    settings = local_settings(**{"ledger": str(tmp_path / "l.sqlite3"), **tables})
    with specclient.OpenAI(config=settings) as client:
        answer = client.responses.create(**ASK, input="def f(x):")
        assert answer.store is False
        assert answer.output_text
        with pytest.raises(
            specclient.BadRequestError, match="Nothing is stored here, because the ledger"
        ) as caught:
            client.responses.create(**ASK, input="more", previous_response_id=answer.id)
        assert caught.value.param == "previous_response_id"
        with pytest.raises(specclient.NotFoundError, match="Nothing is stored here"):
            client.responses.retrieve(answer.id)
        with pytest.raises(specclient.BadRequestError, match="Nothing is stored here"):
            client.conversations.create()


def test_a_database_that_cannot_be_written_breaks_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    with specclient.OpenAI(config=local_settings(tmp_path / "folder")) as client:  # a folder is no database
        for _ in range(2):
            answer = client.responses.create(**ASK, input="def f(x):")
            assert (answer.store, bool(answer.output_text)) == (False, True)
            *_, last = client.responses.create(**ASK, input="def f(x):", stream=True)
            assert last.response.store is False
        with pytest.raises(specclient.InternalServerError) as caught:
            client.responses.create(**ASK, input="more", previous_response_id=answer.id)
        assert (caught.value.status_code, caught.value.code) == (503, "store_unavailable")
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert sum("a response is not stored" in text for text in warnings) == 1


def test_a_response_larger_than_the_limits_is_answered_and_not_stored(tmp_path: Path) -> None:
    settings = local_settings(tmp_path / "l.sqlite3", stored={"max_bytes_per_key": 2000})
    with specclient.OpenAI(config=settings) as client:
        assert client.responses.create(**ASK, input="x").store is True
        answer = client.responses.create(**ASK, input="x = 1\n" * 150)
        assert (answer.store, bool(answer.output_text)) == (False, True)


def test_the_rows_of_the_ledger_have_no_text_of_what_is_stored(here: specclient.OpenAI, folder: Path) -> None:
    word = "xylophone"
    here.responses.create(**ASK, input=f"def {word}(x):")
    here.ledger.flush()
    with sqlite3.connect(folder / "here.sqlite3") as database:
        for table in ("calls", "calls_by_hour"):
            assert word not in str(database.execute(f"SELECT * FROM {table}").fetchall())
        assert word in str(database.execute("SELECT input FROM stored_objects").fetchall())
    database.close()


def test_a_stream_that_is_left_is_not_stored(here: specclient.OpenAI) -> None:
    with here.responses.create(**{**ASK, "max_output_tokens": 200}, input="def f(x):", stream=True) as stream:
        first = next(iter(stream))
    with pytest.raises(specclient.NotFoundError):
        here.responses.retrieve(first.response.id)


@pytest.mark.anyio
async def test_a_stream_closed_before_its_first_event_ends_its_call(tmp_path: Path) -> None:
    async with specclient.AsyncOpenAI(config=local_settings(tmp_path / "l.sqlite3")) as client:
        stream = await client.responses.create(**ASK, input="def f(x):", stream=True)
        await stream.close()
        assert stream.meta.status == "cancelled"


def test_a_hosted_model_continues_what_is_stored_here(openai_server: OpenAIServer, tmp_path: Path) -> None:
    provider = {"base_url": openai_server.base_url, "api_key": "k"}
    settings = local_settings(tmp_path / "l.sqlite3", providers={"mine": provider}, default_provider="mine")
    with specclient.OpenAI(config=settings) as client:
        first = client.responses.create(**ASK, input="def f(x):")
        openai_server.script(reply(200, {"id": "resp_1", **HOSTED, "output": [SAID]}))
        answer = client.responses.create(model="mine/m", input="more", previous_response_id=first.id)
        assert (answer.id, answer.previous_response_id) == ("resp_1", first.id)
        sent = openai_server.requests[-1].json
        assert "previous_response_id" not in sent
        assert [item["role"] for item in sent["input"]] == ["user", "assistant", "user"]
        assert not any("id" in item for item in sent["input"])
        # A conversation here gets the answer, whole or streamed.
        here_alone: Any = {"specclient": {"provider": "local"}}
        talk = client.conversations.create(extra_body=here_alone)
        openai_server.script(
            reply(200, {"id": "resp_2", **HOSTED, "output": [SAID]}),
            events(
                b'data: {"type": "response.completed", "sequence_number": 0, "response": '
                b'{"id": "resp_3", "object": "response", "status": "completed", "output": []}}\n\n'
            ),
        )
        answer = client.responses.create(model="mine/m", input="where?", conversation=talk.id)
        assert (answer.id, answer.conversation.id) == ("resp_2", talk.id)
        (last,) = client.responses.create(model="mine/m", input="sure?", conversation=talk.id, stream=True)
        assert last.response.conversation.id == talk.id
        roles = [item.role for item in client.conversations.items.list(talk.id, order="asc")]
        assert roles == ["user", "assistant", "user"]
        # The provider is asked for responses that it stores.
        openai_server.script(reply(200, {"id": "resp_1", **HOSTED, "output": []}))
        assert client.responses.retrieve("resp_1").id == "resp_1"
        assert openai_server.requests[-1].path == "/v1/responses/resp_1"
        openai_server.script(
            reply(200, {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}})
        )
        assert client.conversations.create().id == "conv_1"
