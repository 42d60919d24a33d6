"""Parsing of tool calls in each family's format, however the text is split into pieces."""

from __future__ import annotations

import random

import pytest

from specclient.chat_format.tool_calls import (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_SPLIT,
    ParsedToolCall,
    ToolCallParser,
    collect_deltas,
    tool_call_format,
)
from specclient.errors import UnsupportedParameterError

FORMATS = {"hermes": HERMES, "llama": LLAMA, "mistral": MISTRAL, "split": MISTRAL_SPLIT}
F, G = ParsedToolCall("f", '{"a": 1}'), ParsedToolCall("g", "{}")


def read(form, text, *, most=None, cuts=None):
    """Parse a text, split into pieces of lengths ``cuts``, or whole."""
    reader, deltas, at = ToolCallParser(form, {"f", "g"}, most), [], 0
    for size in cuts or [len(text)]:
        deltas += reader.push(text[at : at + size])
        at += size
    return deltas + reader.push(text[at:]) + reader.flush()


@pytest.mark.parametrize(
    ("form", "text", "content", "calls"),
    [
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", [F]),
        (
            "hermes",
            'I look.\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>\n'
            '{"name": "g", "arguments": {}}\n</tool_call>\n',
            "I look.",
            [F, G],
        ),
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [F]),
        ("hermes", '<tool_call>{"name": "g"}</tool_call>', "", [G]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [F]),
        ("hermes", '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call> done', "done", [F]),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"s": "}]\\"</tool_call>{", "t": [{}]}}</tool_call>',
            "",
            [ParsedToolCall("f", '{"s": "}]\\"</tool_call>{", "t": [{}]}')],
        ),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": "cut o',
            "",
            [ParsedToolCall("f", '{"a": "cut o')],
        ),
        ("hermes", '<tool_call>{"name": "f", "argu', '<tool_call>{"name": "f", "argu', []),
        ("hermes", "a <tool <tool_call>no call</tool_call>", "a <tool <tool_call>no call</tool_call>", []),
        ("hermes", '{"name": "f", "arguments": {}}', '{"name": "f", "arguments": {}}', []),
        ("hermes", " \n two words \n", " \n two words \n", []),
        ("llama", '{"name": "f", "parameters": {"a": 1}}', "", [F]),
        ("llama", ' {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', "", [F, G]),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', "", [F]),
        ("llama", '<|python_tag|>{"name": "h", "parameters": {}}', "", [ParsedToolCall("h", "{}")]),
        ("llama", '{"name": "h", "parameters": {}} x', '{"name": "h", "parameters": {}} x', []),
        ("llama", ' {"answer": 42}', ' {"answer": 42}', []),
        ("llama", 'So: {"name": "f", "parameters": {}}', 'So: {"name": "f", "parameters": {}}', []),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', "", [F]),
        (
            "mistral",
            'H.[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}, "id": 1}]',
            "H.",
            [F, G],
        ),
        ("mistral", "[TOOL_CALLS]{}[", "[TOOL_CALLS]{}[", []),
        ("split", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", [F, G]),
        ("split", "[TOOL_CALLS]f{}", "[TOOL_CALLS]f{}", []),
    ],
)
def test_parsed_calls_do_not_depend_on_how_the_text_is_split(form, text, content, calls):
    chance = random.Random(0)
    for cuts in (None, [1] * len(text), *([chance.randint(1, 9) for _ in text] for _ in range(5))):
        assert collect_deltas(read(FORMATS[form], text, cuts=cuts)) == (content, calls), cuts


def test_arguments_are_streamed_as_they_are_generated():
    reader = ToolCallParser(HERMES, {"f"})
    assert reader.push('<tool_call>{"name": "f", "arg') == []
    begun, first = reader.push('uments": {"a": "b')
    assert (begun.call, begun.name, first.arguments) == (0, "f", '{"a": "b')
    assert [d.arguments for d in reader.push(" c")] == [" c"]
    assert [d.arguments for d in reader.push('"}}</tool_')] == ['"}']
    assert reader.push("call>") == reader.flush() == []


def test_text_is_held_back_only_if_a_call_may_begin():
    reader = ToolCallParser(HERMES, {"f"})
    assert [d.content for d in reader.push("a <b")] == ["a <b"]
    assert reader.push("<tool_") == []
    assert [d.content for d in reader.push("x")] == ["<tool_x"]


def test_calls_beyond_the_limit_are_omitted():
    text = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]'
    assert collect_deltas(read(MISTRAL, text, most=1, cuts=[1] * len(text))) == ("", [F])


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]", MISTRAL),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]x[ARGS]", MISTRAL_SPLIT),
        ('{% if tools %}{"name": …, "parameters": …}{% endif %}', LLAMA),
    ],
)
def test_the_format_is_detected_from_the_chat_template(template, form):
    assert tool_call_format(template, "m") is form


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages }}", "by m: its chat template does not support tools"),
        ("{{ tools }}<tool_call><function=f>", "in an unknown format; supported are Hermes's"),
    ],
)
def test_a_template_without_a_known_format_is_rejected(template, message):
    with pytest.raises(UnsupportedParameterError, match=message) as caught:
        tool_call_format(template, "m")
    assert caught.value.param == "tools"
