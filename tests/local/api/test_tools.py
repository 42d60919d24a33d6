"""Tools, schemas and parsed answers on local models, through the client and through the server.

The models are random; grammars make their output valid calls. The templates are short imitations of each
family's format.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Literal

import openai
import pytest
from gateway_server import Served
from pydantic import BaseModel
from specclient_local.api.openai_request.chat import parse_messages
from specclient_local.model.tokenizer import Tokenizer
from tiny_models import byte_tokenizer
from tokenizers import AddedToken

from specclient import BadRequestError, OpenAI, UnsupportedParameterError, pydantic_function_tool
from specclient.config import Settings

_SAY = "{% for m in messages %}<|bos|>{{ m.role }}: {{ m.content }}"
_END = "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
_SHOWN = "{% if tools %}<|bos|>tools: {% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
TEMPLATES = {
    "hermes": _SHOWN + _SAY + "{% for c in m.tool_calls or [] %}<tool_call>\n{"
    '"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}" + _END,
    "llama": _SHOWN + _SAY + "{% for c in m.tool_calls or [] %}{"
    '"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'
    "{% endfor %}" + _END,
    "mistral": _SHOWN + _SAY + "{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}{"
    '"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% endfor %}]{% endif %}" + _END,
    "silent": _SAY + _END,
    "strange": _SHOWN + _SAY + _END,
}
FAMILIES = ("hermes", "llama", "mistral")
MESSAGES = [{"role": "user", "content": "hi"}]
SKY = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "K\u00f6ln"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "sky", "description": "The weather.", "parameters": SKY}},
    {"type": "function", "function": {"name": "now"}},
]


class Reply(BaseModel):
    mood: Literal["good", "bad"]


class Sky(BaseModel):
    city: Literal["Ulm", "Bonn"]


def words():
    made = byte_tokenizer(290)
    made.add_tokens([AddedToken(n, special=False, normalized=False) for n in ("<tool_call>", "</tool_call>")])
    made.add_special_tokens([AddedToken("[TOOL_CALLS]"), AddedToken("<|python_tag|>")])
    return made


@pytest.fixture(scope="module")
def folders(checkpoint, tmp_path_factory):
    """Write one checkpoint per family, with the same weights and the family's chat template."""
    base, made = checkpoint(max_position_embeddings=1024), {}
    for name, template in TEMPLATES.items():
        made[name] = tmp_path_factory.mktemp(name) / name
        shutil.copytree(base, made[name])
        words().save(str(made[name] / "tokenizer.json"))
        file = made[name] / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return made


@pytest.fixture(scope="module")
def settings(folders):
    models = {name: {"path": str(folder), "draft": str(folder)} for name, folder in folders.items()}
    return Settings.model_validate({"ledger": "off", "local": {"threads": 1, "models": models}})


@pytest.fixture(scope="module")
def client(settings):
    with OpenAI(config=settings) as made:
        yield made


def ask(client, family, **params):
    params = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 120, "temperature": 1.0, "seed": 2} | params
    return client.chat.completions.create(model=f"local/{family}", **params)


def checked(call):
    """Return a call's name and arguments, after checking them against its tool's schema."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "now":
        assert arguments == {}
    else:
        assert call.function.name == "sky"
        assert (arguments["city"] in SKY["properties"]["city"]["enum"], arguments["days"] in (1, 2)) == (1, 1)
        assert len(arguments) == 2
    return call.function.name, arguments


@pytest.mark.parametrize("family", FAMILIES)
def test_a_required_call_is_returned_whole_and_streamed(client, family):
    params = {"tool_choice": "required", "parallel_tool_calls": False}
    choice = ask(client, family, **params).choices[0]
    (call,) = choice.message.tool_calls
    checked(call)
    assert (choice.finish_reason, choice.message.content, call.type) == ("tool_calls", None, "function")
    assert re.fullmatch("[0-9a-f]{9}" if family == "mistral" else "call_[0-9a-f]{24}", call.id)
    parts = [c.choices[0] for c in ask(client, family, stream=True, **params)]
    assert [p.finish_reason for p in parts] == [None] * (len(parts) - 1) + ["tool_calls"]
    deltas = [delta for part in parts for delta in part.delta.tool_calls or ()]
    assert not any(part.delta.content for part in parts)
    assert (deltas[0].index, deltas[0].type, bool(deltas[0].id)) == (0, "function", True)
    assert deltas[0].function.name == call.function.name
    assert {(d.id, d.type, d.function.name) for d in deltas[1:]} == {(None, None, None)}
    assert "".join(d.function.arguments for d in deltas) == call.function.arguments


def test_a_call_completed_in_the_last_round_has_finish_reason_tool_calls(client):
    """Arguments that are not an object are only recognised at their end, here in the answer's last round."""
    only = [{"type": "function", "function": {"name": "n", "parameters": {"const": 1}}}]
    params = {"tools": only, "tool_choice": "required", "parallel_tool_calls": False}
    ends = set()
    for length in (8, 9, 10):
        stream = ask(
            client, "llama", stream=True, extra_body={"specclient": {"draft_length": length}}, **params
        )
        ends.add([chunk.choices[0].finish_reason for chunk in stream][-1])
    assert ends == {"tool_calls"}


@pytest.mark.parametrize("family", FAMILIES)
def test_tool_choice_selects_the_named_tool(client, family):
    for name in ("sky", "now"):
        named = {"type": "function", "function": {"name": name}}
        calls = ask(client, family, tool_choice=named).choices[0].message.tool_calls
        assert [checked(call)[0] for call in calls] == [name]
    among = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOLS[1]]}}
    calls = ask(client, family, tool_choice=among, max_tokens=60).choices[0].message.tool_calls
    assert {call.function.name for call in calls} == {"now"}


def test_each_of_n_choices_has_its_own_calls(client):
    answer = ask(client, "hermes", tool_choice="required", parallel_tool_calls=False, n=3)
    calls = [choice.message.tool_calls[0] for choice in answer.choices]
    assert len({call.id for call in calls}) == 3
    assert len({json.dumps(checked(call)) for call in calls}) > 1
    streamed = {}
    for chunk in ask(client, "hermes", tool_choice="required", parallel_tool_calls=False, n=3, stream=True):
        for part in chunk.choices:
            for delta in part.delta.tool_calls or ():
                streamed[part.index] = streamed.get(part.index, "") + delta.function.arguments
    assert streamed == {i: call.function.arguments for i, call in enumerate(calls)}


def test_tool_choice_auto_allows_calls_and_text(client):
    talk = ask(client, "mistral", tool_choice="auto", max_tokens=8).choices[0]
    assert (talk.message.tool_calls, talk.finish_reason) == (None, "length")
    assert talk.message.content
    # A bias makes the start marker of a call likely; a strict tool constrains the rest to its schema.
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    mark = words().token_to_id("[TOOL_CALLS]")
    called = ask(client, "mistral", tools=strict, logit_bias={str(mark): 100}).choices[0]
    assert called.finish_reason == "tool_calls"
    assert [checked(call)[0] for call in called.message.tool_calls] == ["sky"] * len(
        called.message.tool_calls
    )
    # Without a grammar, a start marker without a call is returned as content.
    loose = ask(client, "mistral", logit_bias={str(mark): 100}, max_tokens=2).choices[0]
    assert loose.message.content == "[TOOL_CALLS]" * 2


def test_tools_are_in_the_prompt_unless_tool_choice_is_none(client):
    bare = ask(client, "hermes", tools=None, max_tokens=1).usage.prompt_tokens
    assert ask(client, "hermes", max_tokens=1).usage.prompt_tokens > bare + 100
    assert ask(client, "hermes", tool_choice="none", max_tokens=1).usage.prompt_tokens == bare


@pytest.mark.parametrize(
    ("family", "rendered"),
    [
        ("hermes", '<tool_call>\n{"name": "sky", "arguments": {"city": "Ulm"}}\n</tool_call>'),
        ("llama", '{"name": "sky", "parameters": {"city": "Ulm"}}'),
        ("mistral", '[TOOL_CALLS][{"name": "sky", "arguments": {"city": "Ulm"}, "id": "abc123def"}]'),
    ],
)
def test_calls_and_results_are_rendered_by_the_chat_template(client, folders, family, rendered):
    function = {"name": "sky", "arguments": '{"city": "Ulm"}'}
    call = {"id": "abc123def", "type": "function", "function": function}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abc123def", "content": "sun"},
    ]
    tokenizer = Tokenizer(folders[family])
    ids = tokenizer.chat(parse_messages(messages), TOOLS)
    shown = b"".join(tokenizer.piece(token) for token in ids).decode()
    assert f"<|bos|>assistant: {rendered}\n<|bos|>tool: sun\nassistant:" in shown
    assert '"description": "The weather."' in shown
    answer = ask(client, family, messages=messages, max_tokens=3)
    assert answer.usage.prompt_tokens == len(ids)


def test_parse_and_stream_return_parsed_answers_and_arguments(client):
    seen = set()
    for seed in range(4):
        completion = client.chat.completions.parse(
            model="local/silent", messages=MESSAGES, response_format=Reply, max_tokens=200, seed=seed
        )
        seen.add(completion.choices[0].message.parsed.mood)
    assert seen == {"good", "bad"}
    parsed = client.chat.completions.parse(
        model="local/hermes", messages=MESSAGES, tools=[pydantic_function_tool(Sky)], tool_choice="required",
        parallel_tool_calls=False, max_tokens=120,
    )  # fmt: skip
    (call,) = parsed.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Sky)
    with client.chat.completions.stream(
        model="local/silent", messages=MESSAGES, response_format=Reply, max_tokens=200
    ) as stream:
        assert stream.get_final_completion().choices[0].message.parsed.mood in ("good", "bad")


def test_json_object_and_non_strict_json_schema_formats(client):
    params = {"tools": None, "max_tokens": 300}
    free = ask(client, "silent", response_format={"type": "json_object"}, **params).choices[0]
    assert free.finish_reason == "length" or isinstance(json.loads(free.message.content), dict)
    assert free.message.content.lstrip()[0] == "{"
    loose = {"name": "n", "schema": {"enum": ["a", "b"]}}
    form = {"type": "json_schema", "json_schema": loose}
    assert (
        json.loads(ask(client, "silent", response_format=form, **params).choices[0].message.content) in "ab"
    )


def test_a_response_format_applies_to_answers_without_calls(client):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": "me"}}}
    kinds = set()
    for seed in range(8):
        message = ask(client, "mistral", response_format=form, seed=seed).choices[0].message
        kinds.add("calls" if message.tool_calls else json.loads(message.content))
    assert kinds == {"calls", "me"}
    with pytest.raises(BadRequestError, match="together with tools"):
        ask(client, "mistral", extra_body={"guided_regex": "a"})


@pytest.mark.parametrize(
    ("family", "params", "error", "message"),
    [
        ("silent", {}, UnsupportedParameterError, "local/silent: its chat template does not support tools"),
        ("strange", {}, UnsupportedParameterError, "unknown format; supported are Hermes's"),
        (
            "hermes",
            {"tools": [{"type": "custom"}]},
            BadRequestError,
            r"tools\[0\] is .* only functions are supported",
        ),
        ("hermes", {"tools": [TOOLS[1], TOOLS[1]]}, BadRequestError, "tools with distinct names"),
        (
            "hermes",
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            BadRequestError,
            r"tools\[0\].function.name is 'a b'",
        ),
        ("hermes", {"tool_choice": "sometimes"}, BadRequestError, "allowed is none, auto, required"),
        ("hermes", {"tools": [], "tool_choice": "required"}, BadRequestError, "of the tools given"),
        (
            "hermes",
            {"tool_choice": {"type": "function", "function": {"name": "rain"}}},
            BadRequestError,
            "'rain'.* of the tools given",
        ),
        ("hermes", {"parallel_tool_calls": 1}, BadRequestError, "true or false"),
        (
            "hermes",
            {
                "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "odd"}}}],
            },
            BadRequestError,
            "tools cannot be used",
        ),
    ],
)
def test_invalid_tool_parameters_raise_with_the_parameters_name(client, family, params, error, message):
    with pytest.raises(error, match=message) as caught:
        ask(client, family, **params)
    assert caught.value.param.startswith(("tool", "parallel"))


def test_invalid_arguments_in_an_earlier_call_are_rejected(client):
    call = {"id": "1", "type": "function", "function": {"name": "sky", "arguments": "{"}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(BadRequestError, match="the JSON text of an object") as caught:
        ask(client, "hermes", messages=messages)
    assert caught.value.param == "messages[0].tool_calls[0].function.arguments"


def test_the_official_client_calls_tools_over_http(settings):
    with Served(settings) as served, openai.OpenAI(base_url=served.base_url, api_key="any") as official:
        params = {"model": "local/hermes", "messages": MESSAGES, "tools": TOOLS, "max_tokens": 120, "seed": 1}
        params |= {"tool_choice": "required", "parallel_tool_calls": False}
        answer = official.chat.completions.create(n=2, **params)
        assert [choice.finish_reason for choice in answer.choices] == ["tool_calls"] * 2
        first_calls = [checked(choice.message.tool_calls[0]) for choice in answer.choices]
        with official.chat.completions.stream(n=2, **params) as stream:
            final = stream.get_final_completion()
        assert [checked(choice.message.tool_calls[0]) for choice in final.choices] == first_calls
        messages = [*MESSAGES, answer.choices[0].message, {
            "role": "tool", "tool_call_id": answer.choices[0].message.tool_calls[0].id, "content": "sun",
        }]  # fmt: skip
        again = official.chat.completions.create(**{**params, "messages": messages, "tool_choice": "auto"})
        assert again.usage.prompt_tokens > answer.usage.prompt_tokens
