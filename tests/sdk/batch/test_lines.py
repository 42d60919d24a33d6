"""Parsing of batch lines in the plain and the OpenAI form, their defaults, and the errors of invalid ones."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.batch.lines import BatchDefaults, duplicate_line, parse_line
from specclient.batch.records import parse_record, refused_record
from specclient.types.policy import Policy

DEFAULTS = BatchDefaults(default_model="openai/gpt-4.1", tags={"team": "a"})
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def openai(url: str = "/v1/chat/completions", custom_id: object = "a", method: str = "POST", **body) -> dict:
    return {"custom_id": custom_id, "method": method, "url": url, "body": body}


@pytest.mark.parametrize(
    ("line", "method", "params", "extra"),
    [
        ({"prompt": "Hi"}, "chat.completions.create", CHAT, {}),
        ({"prompt": "Hi", "model": "local/x"}, "completions.create", {"prompt": "Hi"}, {}),
        ({**CHAT, "seed": 1, "top_k": 4}, "chat.completions.create", {**CHAT, "seed": 1}, {"top_k": 4}),
        (openai(**CHAT, stream=False), "chat.completions.create", CHAT, {}),
        (openai("/chat/completions", **CHAT), "chat.completions.create", CHAT, {}),
        (openai("/v1/completions", prompt="Hi"), "completions.create", {"prompt": "Hi"}, {}),
        (openai("/v1/embeddings", input=["a", "b"]), "embeddings.create", {"input": ["a", "b"]}, {}),
        (openai("/v1/responses", input="Hi"), "responses.create", {"input": "Hi"}, {}),
        (openai("/v1/responses", prompt={"id": "p"}), "responses.create", {"prompt": {"id": "p"}}, {}),
    ],
)
def test_plain_and_openai_lines_are_parsed(line: dict, method: str, params: dict, extra: dict) -> None:
    for raw in (line, json.dumps(line), json.dumps(line).encode() + b"\n"):
        request = parse_line(7, raw, DEFAULTS).request
        assert request is not None
        assert (request.method.name, request.params, request.options.body) == (method, params, extra)
        assert request.options.tags == {"team": "a"}
        assert request.model == line.get("model", "openai/gpt-4.1")


@pytest.mark.parametrize(
    ("defaults", "line", "model"),
    [
        ({}, openai(model="m", **CHAT), "m"),
        ({"model": "mine/x"}, openai(model="m", **CHAT), "mine/x"),
        ({"policy": Policy()}, openai(model="m", **CHAT), "auto"),
    ],
)
def test_the_model_of_a_line(defaults: dict, line: dict, model: str) -> None:
    request = parse_line(1, line, BatchDefaults(default_model="d", **defaults)).request
    assert request.model == model
    assert request.policy == defaults.get("policy")


def test_parameters_of_a_line_override_the_defaults() -> None:
    defaults = BatchDefaults(default_model="d", params={"max_tokens": 5, "temperature": 0}, form="chat")
    params = parse_line(1, {**CHAT, "max_completion_tokens": 9}, defaults).request.params
    assert params == {**CHAT, "max_completion_tokens": 9, "temperature": 0}
    assert parse_line(1, openai("/v1/embeddings", input="x"), defaults).request.params == {"input": "x"}
    plain = parse_line(1, {"prompt": "x", "model": "local/demo"}, defaults).request
    assert plain.method.name == "chat.completions.create"


@pytest.mark.parametrize(
    ("line", "identity"), [({"prompt": "x"}, 7), ({"prompt": "x", "id": "q"}, "q"), (openai(**CHAT), "a")]
)
def test_the_id_of_a_line(line: dict, identity: object) -> None:
    assert parse_line(7, line, DEFAULTS).id == identity


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        (b"\n", "empty_line", "is empty"),
        (b'{"prompt": ', "invalid_json", "is not JSON"),
        (b"[" * 100_000, "invalid_json", "is not JSON"),
        (b'{"prompt": "\xff"}', "invalid_json", "is not JSON"),
        (b"[1]", "invalid_line", "not a JSON object"),
        ({"text": "x"}, "invalid_line", "neither prompt"),
        ({"prompt": 5}, "invalid_line", "neither prompt"),
        ({"prompt": "x", "id": [1]}, "invalid_id", r"\[1\]"),
        ({"prompt": "x", "stream": True}, "invalid_body", "stream"),
        ({"prompt": "x", "n": 2}, "invalid_body", "n = 2"),
        ({"messages": "x"}, "invalid_body", "list of objects"),
        ({"messages": [1]}, "invalid_body", "list of objects"),
        ({"prompt": "x", "model": 5}, "invalid_body", "model 5"),
        (openai("/v1/images", **CHAT), "invalid_url", "/v1/embeddings"),
        (openai(None, **CHAT), "invalid_url", "null"),
        (openai(custom_id="", **CHAT), "invalid_custom_id", '""'),
        (openai(custom_id=5, **CHAT), "invalid_custom_id", "5"),
        (openai(method="GET", **CHAT), "invalid_method", "GET"),
        (openai(), "invalid_body", "messages null"),
        (openai("/v1/embeddings"), "invalid_body", "no input"),
        ({"custom_id": "a", "url": "/v1/embeddings"}, "invalid_body", "body null"),
    ],
)
def test_the_error_of_an_invalid_line_has_its_number(raw: object, code: str, message: str) -> None:
    line = parse_line(7, raw, DEFAULTS)
    assert line.request is None
    assert line.problem.code == code
    assert line.problem.message.startswith("line 7 ")
    record = refused_record(line)
    assert json.loads(record.line())["error"]["line"] == 7
    assert re.search(message, record.reason)
    assert parse_record(record.line()) == (line.key, False, None)


def test_the_error_of_a_duplicate_names_both_lines() -> None:
    line = duplicate_line(parse_line(9, openai(**CHAT), DEFAULTS), 2)
    assert (line.id, line.problem.code) == ("a", "duplicate_custom_id")
    assert line.problem.message == "line 9 has the custom_id 'a' of line 2; every line needs its own"
    assert line.key != parse_line(2, openai(**CHAT), DEFAULTS).key, "the record is not that of the other line"


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_parsed_to_a_request_or_an_error(raw: bytes) -> None:
    line = parse_line(1, raw, DEFAULTS)
    assert (line.request is None) is (line.problem is not None)
    assert parse_record(raw) is None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"id": 1, "output": "x", "cost": "0.5", "error": null}', ("id 1", True, Decimal("0.5"))),
        (b'{"id": "1", "output": null, "cost": null, "error": {"code": "x"}}', ('id "1"', False, None)),
        (b'{"id": 1, "output": "x", "cost": "NaN", "error": null}', ("id 1", True, None)),
        (
            b'{"id": "b", "custom_id": "c", "response": {"status_code": 200}, "error": null}',
            ('custom_id "c"', True, None),
        ),
        (
            b'{"id": "b", "custom_id": "c", "response": {"status_code": 429}, "error": null}',
            ('custom_id "c"', False, None),
        ),
        (b'{"id": "b", "custom_id": "c", "response": null, "error": {}}', ('custom_id "c"', False, None)),
        (b'{"prompt": "x"}', None),
        (b'{"custom_id": "a", "url": "/v1/embeddings", "body": {}}', None),
        (b'{"id": 1, "out', None),
        (b"7", None),
    ],
)
def test_written_records_are_parsed(raw: bytes, expected: object) -> None:
    assert parse_record(raw) == expected
