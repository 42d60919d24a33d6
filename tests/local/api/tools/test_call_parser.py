"""Parsing of tool calls in each family's format, however the text is split into pieces, and call grammars."""

from __future__ import annotations

import json
import random

import pytest
import torch
from specclient_local.api.tools.call_grammar import ToolSettings, tool_call_grammar
from specclient_local.api.tools.call_parser import (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_SPLIT,
    ParsedToolCall,
    ToolCallParser,
    collect_deltas,
    tool_call_format,
)
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from tiny_models import byte_tokenizer
from tokenizers import AddedToken

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
        ("{{ messages }}", "local/m: its chat template does not support tools"),
        ("{{ tools }}<tool_call><function=f>", "in an unknown format; supported are Hermes's"),
    ],
)
def test_a_template_without_a_known_format_is_rejected(template, message):
    with pytest.raises(UnsupportedParameterError, match=message) as caught:
        tool_call_format(template, "m")
    assert caught.value.param == "tools"


# Output allowed by a call grammar is parsed as the calls that the grammar describes.


def tool(name, schema=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


ONE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/k"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"k": {"enum": ["x", "\u00e9}"]}},
}
TOOLS = [tool("f", ONE), tool("g")]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return a tokenizer with the markers of all formats, some of them special, and a grammar compiler."""
    made, folder = byte_tokenizer(290), tmp_path_factory.mktemp("words")
    plain = ["<tool_call>", "</tool_call>"]
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in plain])
    made.add_special_tokens([AddedToken(n) for n in ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")])
    made.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(folder)
    return tokenizer, GrammarCompiler(tokenizer, made.get_vocab_size(), [1])


def written(words, tools, form, seed, most=200):
    """Generate random allowed tokens, often markers or the end; return the text and whether it ended."""
    tokenizer, grammars = words
    lark = tool_call_grammar(tools, form, tokenizer.added)
    rule, chance, ids = grammars.grammar(SamplingParams(grammar=lark), [1]), random.Random(seed), []
    while len(ids) < most and not rule.ended:
        logits = torch.zeros(1, 295)
        rule.apply(logits, [[]])
        allowed = (logits[0] == 0).nonzero().flatten().tolist()
        rare = [i for i in allowed if i == 1 or i >= 288]
        token = chance.choice(rare if rare and chance.random() < 0.3 else allowed)
        rule.take(token)
        ids += [token] if token != 1 else []
    return tokenizer.decode(ids), rule.ended


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    "choice",
    [
        {"choice": "required"},
        {"choice": "required", "allowed": {"f"}},
        {"choice": "required", "parallel": False},
    ],
    ids=["any", "named", "one"],
)
def test_a_required_call_grammar_generates_valid_calls(words, form, choice):
    tools = ToolSettings(TOOLS, **choice)
    names, counts = set(), set()
    for seed in range(16):
        text, whole = written(words, tools, form, seed)
        content, calls = collect_deltas(read(form, text))
        assert whole
        assert (content, bool(calls)) == ("", True)
        names |= {call.name for call in calls}
        counts.add(len(calls))
        for call in calls:
            arguments = json.loads(call.arguments)
            assert arguments == {} if call.name == "g" else arguments["a"] in ("x", "\u00e9}")
    assert names == ({"f", "g"} if tools.allowed is None else {"f"})
    assert (max(counts) > 1) == tools.parallel


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_calls_of_a_strict_tool_follow_its_schema(words, form):
    tools = ToolSettings([tool("f", ONE, strict=True)])
    kinds = set()
    for seed in range(30):
        text, whole = written(words, tools, form, seed)
        content, calls = collect_deltas(read(form, text))
        kinds.add((bool(content.strip()), bool(calls)))
        for call in calls if whole else ():
            assert json.loads(call.arguments)["a"] in ("x", "\u00e9}")
        assert calls or form.start_marker not in content or not whole
    assert {(True, False), (not form.unmarked, True)} <= kinds
    assert tool_call_grammar(ToolSettings(TOOLS), form, words[0].added) is None


def test_plain_text_cannot_spell_the_start_marker(words):
    tokenizer, grammars = words
    lark = tool_call_grammar(ToolSettings([tool("f", ONE, strict=True)]), HERMES, tokenizer.added)
    rule = grammars.grammar(SamplingParams(grammar=lark), [1])

    def allows(char):
        logits = torch.zeros(1, 295)
        rule.apply(logits, [[]])
        return bool(logits[0, tokenizer.encode(char)[0]] == 0)

    for char in "x<tool_call":
        assert allows(char)
        rule.take(tokenizer.encode(char)[0])
    assert allows("_")
    assert not allows(">")


def test_an_answer_without_calls_follows_the_response_schema(words):
    tools = ToolSettings(TOOLS, schema={"const": "me"})
    texts = {written(words, tools, MISTRAL, seed)[0] for seed in range(8)}
    assert '"me"' in texts
    assert all(text == '"me"' or text.startswith("[TOOL_CALLS][{") for text in texts)
    assert len(texts) > 1
