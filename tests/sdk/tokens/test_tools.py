"""Tool tokens: counted by the vendors' published rules; nested schemas are estimates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from paths import SHARED

from specclient.tokens import TokenCount, count_prompt
from specclient.tokens.tools import count_tools
from specclient.types.inference_methods import CHAT, RESPONSE
from specclient.types.request import Request

VOCABULARIES = Path(os.environ.get("TIKTOKEN_CACHE_DIR") or SHARED / "tiktoken")
needs_vocabularies = pytest.mark.skipif(
    not (VOCABULARIES / "fb374d419588a4632f3f557e76b4b70aebbca790").is_file(),
    reason=f"tiktoken's vocabularies are not in {VOCABULARIES}; set TIKTOKEN_CACHE_DIR",
)

#: The example of OpenAI's cookbook, "How to count tokens with tiktoken".
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {
                    "type": "string",
                    "description": "The city and state, e.g. San Francisco, CA",
                },
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}
ASKED = [
    {
        "role": "system",
        "content": "You are a helpful assistant that can answer to questions about the weather.",
    },
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]


@pytest.fixture(autouse=True)
def vocabularies(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(VOCABULARIES))
    monkeypatch.setattr("tiktoken.load.read_file", lambda path: pytest.fail(f"would download {path}"))


@needs_vocabularies
@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-3.5-turbo", 105), ("gpt-4", 105), ("gpt-4o", 101), ("gpt-4o-mini", 101)]
)
def test_the_cookbooks_example_has_the_apis_count(model, tokens):
    request = Request(CHAT, params={"messages": ASKED, "tools": [WEATHER]})
    assert count_prompt(request, model) == TokenCount(tokens)


@needs_vocabularies
def test_legacy_functions_and_responses_tools_count_like_chat_tools():
    chat = count_tools([WEATHER], "gpt-4o")
    assert count_tools([WEATHER["function"]], "gpt-4o") == chat
    assert count_tools([{"type": "function", **WEATHER["function"]}], "gpt-4o") == chat
    asked = {"input": "x", "tools": [{"type": "function", **WEATHER["function"]}]}
    bare = {"input": "x"}
    more = count_prompt(Request(RESPONSE, params=asked), "gpt-4o").tokens
    assert more - count_prompt(Request(RESPONSE, params=bare), "gpt-4o").tokens == chat.tokens


def nested(**more):
    properties = {"where": {"type": "object", "properties": {"city": {"type": "string"}}, **more}}
    return {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": properties}},
    }


@pytest.mark.parametrize(
    "tool",
    [
        nested(),
        {"type": "web_search"},
        "no tool",
        {"type": "function", "function": {"name": 5}},
        {"function": None},
    ],
)
def test_tools_without_a_published_rule_are_estimates(tool):
    assert count_tools([tool], "gpt-4o").estimated


def test_a_longer_description_counts_more():
    less, more = count_tools([nested()], "gpt-4o"), count_tools([nested(description="x " * 100)], "gpt-4o")
    assert more.tokens > less.tokens + 50


def test_anthropics_tool_prompt_is_added():
    free, forced = (count_tools([WEATHER], "claude-sonnet-4-5", choice=each) for each in ("auto", "required"))
    assert free.estimated
    assert free.tokens - forced.tokens == 346 - 313
    assert free.tokens > 346 + 50
    other = count_tools([WEATHER], "gemini-2.5-flash")
    assert other.estimated
    assert other.tokens < free.tokens - 300


@pytest.mark.parametrize("tools", [None, [], {}, "tools", 5])
def test_no_tools_count_zero(tools):
    assert count_tools(tools, "gpt-4o") == TokenCount(0)


def test_a_response_format_schema_adds_to_the_prompt():
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"description": "word " * 50}}}
    plain = count_prompt(Request(CHAT, params={"messages": ASKED}), "gpt-4o")
    with_schema = count_prompt(Request(CHAT, params={"messages": ASKED, "response_format": schema}), "gpt-4o")
    assert with_schema.tokens > plain.tokens + 50
    assert with_schema.estimated
