"""Call grammars: output that they allow is parsed as the calls that they describe."""

from __future__ import annotations

import json
import random

import pytest
import torch
from specclient_local.api.tools.call_grammar import ToolSettings, closed_schema, tool_call_grammar
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from tiny_models import byte_tokenizer
from tokenizers import AddedToken

from specclient.chat_format.tool_calls import (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_SPLIT,
    ToolCallParser,
    collect_deltas,
)

FORMATS = {"hermes": HERMES, "llama": LLAMA, "mistral": MISTRAL, "split": MISTRAL_SPLIT}


def read(form, text):
    reader = ToolCallParser(form, {"f", "g"})
    return reader.push(text) + reader.flush()


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


OPEN = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
CLOSED = {**OPEN, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (OPEN, CLOSED),
        (CLOSED, CLOSED),
        ({**OPEN, "additionalProperties": True}, None),
        ({**OPEN, "patternProperties": {"^b": {}}}, None),
        ({**OPEN, "anyOf": [{"required": ["a"]}]}, None),
        ({"type": "object"}, None),
        ({"allOf": [OPEN, {"properties": {"b": {}}}]}, None),
        ({"anyOf": [OPEN, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"items": OPEN}, {"items": CLOSED}),
        (
            {"properties": {"o": OPEN}, "$defs": {"d": OPEN}},
            {"properties": {"o": CLOSED}, "$defs": {"d": CLOSED}, "additionalProperties": False},
        ),
    ],
    ids=str,
)
def test_objects_take_only_the_properties_that_they_name(schema, expected):
    assert closed_schema(schema) == (expected or schema)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_function_gets_no_other_arguments_than_it_names(words, form):
    tools = ToolSettings([tool("f", OPEN)], choice="required", parallel=False)
    for seed in range(5):
        text, ended = written(words, tools, form, seed)
        assert ended
        _, [call] = collect_deltas(read(form, text))
        assert json.loads(call.arguments) == {"a": "x"}
