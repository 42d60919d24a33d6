"""The runner of the libraries' checks: its canned server, its page, and one run of a script."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from paths import ROOT
from pydantic import BaseModel


@pytest.fixture(scope="module", autouse=True)
def _tools() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    from libraries.canned_server import canned_server

    with canned_server() as url, openai.OpenAI(base_url=url, api_key="any", max_retries=0) as made:
        yield made


class Town(BaseModel):
    city: str
    people: list[int]


MODEL = "gpt-4o-mini"
ASK: Any = [{"role": "user", "content": "Where?"}]
TEXT = "The quick brown fox jumps over the lazy dog."


def test_chat_answers_are_what_the_official_client_reads(client: openai.OpenAI) -> None:
    chat = client.chat.completions
    assert chat.create(model=MODEL, messages=ASK).choices[0].message.content == TEXT
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = chat.create(model=MODEL, messages=ASK, **options)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert last.usage.total_tokens == 16
    assert chat.parse(model=MODEL, messages=ASK, response_format=Town).choices[0].message.parsed == Town(
        city="Ulm", people=[1]
    )
    tools = [openai.pydantic_function_tool(Town)]
    with chat.stream(model=MODEL, messages=ASK, tools=tools) as stream:
        call = (stream.get_final_completion().choices[0].message.tool_calls or [])[0]
    assert call.function.parsed_arguments == Town(city="Ulm", people=[1])
    with pytest.raises(openai.NotFoundError, match="no model other"):
        chat.create(model="other", messages=ASK)


def test_responses_are_what_the_official_client_reads(client: openai.OpenAI) -> None:
    assert client.responses.create(model=MODEL, input="Where?").output_text == TEXT
    with client.responses.stream(model=MODEL, input="Where?", text_format=Town) as stream:
        assert stream.get_final_response().output_parsed == Town(city="Ulm", people=[1])
    tool: Any = {"type": "function", "name": "town", "parameters": Town.model_json_schema(), "strict": True}
    with client.responses.stream(model=MODEL, input="Where?", tools=[tool]) as stream:
        call: Any = stream.get_final_response().output[0]
    assert (call.name, json.loads(call.arguments)) == ("town", {"city": "Ulm", "people": [1]})


def test_the_page_is_written_from_the_results() -> None:
    from libraries.page import page

    results = json.loads((ROOT / "tools" / "libraries" / "results.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8") == page(results)
    failed = {"way": "object", "server": "canned", "check": "tool", "error": "TypeError: a|b"}
    passed = {"way": "object", "server": "demo", "check": "tool", "error": None}
    plain = {"way": "plain", "server": "canned", "check": "tool", "error": "TypeError: c"}
    entry = {"versions": {"one": "1.0", "openai": "3.0"}, "results": [failed, passed, plain]}
    later = {"versions": {"openai": "3.0", "three": "2.0"}, "results": [passed]}
    made = page({"one": entry, "three": later, "two": {"not_installed": "no wheel"}})
    assert "| three 2.0 | 3.0 | 1/1 | – | – |" in made
    assert "| one 1.0 | 3.0 | 1/2 (†1) | – | – |" in made
    assert "- one, client object, hosted tool: `TypeError: a/b`" in made
    assert "not installed: no wheel" in made
    assert "| haystack | | not checked with this version | | |" in made


def test_every_library_has_a_script() -> None:
    from libraries.catalogue import LIBRARIES

    scripts = ROOT / "tools" / "libraries" / "scripts"
    assert {library.script for library in LIBRARIES} == {path.name for path in scripts.glob("with_*")}
    shown = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| ([\w-]+) ", shown, re.MULTILINE)[1:]
    assert named == [library.name for library in LIBRARIES if library.name in named]
