"""Chat templates render as the transformers library renders them, and know what ends an answer."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.chat_format.messages import UnrenderedMessageError
from specclient.chat_format.template import ChatTemplate
from specclient.errors import BadRequestError, ConfigurationError

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
IDS = {"<s>": 1, "</s>": 2, "<|im_start|>": 3, "<|im_end|>": 4}
CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson }}\n"
    "{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content }}\n"
    "    {%- for call in message.tool_calls or [] %}{{- call.function.arguments | tojson(indent=2) }}"
    "{%- endfor %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
LOOPS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% generation %}[{{ m.content | trim }}]{% endgeneration %}{{ eos_token }}{% endfor %}\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
PARTS = "{% for m in messages %}{% for part in m['content'] %}{{ part['text'] }}|{% endfor %}{% endfor %}"
PICKY = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}x"

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <brief> & clear"},
    {"role": "user", "content": " é ☃ "},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "ü<"}}}],
    },
    {"role": "tool", "content": "4", "tool_call_id": "1"},
]
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": None, "parameters": {"type": "object"}}}
]


@pytest.mark.parametrize("text", [CHATML, LOOPS, "{{ messages | tojson }}{{ 'x' if tools }}"])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_chat_is_rendered_as_transformers_renders_it(text: str, tools: Any) -> None:
    library = pytest.importorskip("transformers.utils.chat_template_utils")
    more = {"enable_thinking": False}
    (expected,), _ = library.render_jinja_template(
        [CHAT], tools=tools, chat_template=text, add_generation_prompt=True, **SPECIAL, **more
    )
    assert ChatTemplate("t", text, special_tokens=SPECIAL).render(CHAT, tools, more=more) == expected


def test_messages_are_given_to_templates_as_servers_give_them() -> None:
    template = ChatTemplate("t", CHATML)
    arguments = {"name": "f", "arguments": '{"a": 1}'}
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": arguments}]}
    rendered = template.render([{"role": "user", "content": [{"type": "text", "text": "a"}]}, call])
    assert rendered.startswith('<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{\n  "a": 1\n}')
    assert ChatTemplate("t", PARTS).render([{"role": "user", "content": "a"}]) == "a|"
    several = [{"role": "user", "content": [{"type": "text", "text": text} for text in "ab"]}]
    assert ChatTemplate("t", PARTS).render(several) == "a|b|"
    tool = {"type": "function", "function": {"parameters": {}, "name": "f"}}
    described = '{"type": "function", "function": {"name": "f", "description": null, "parameters": {}}}'
    assert described in template.render([{"role": "user", "content": "a"}], [tool])


def test_a_template_without_developer_turns_gets_one_system_turn() -> None:
    chat = [
        {"role": "developer", "content": "one"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "two"},
    ]
    text = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    assert ChatTemplate("t", text).render(chat) == "system:one\n\ntwo;user:a;"
    assert ChatTemplate("t", text).render(chat[:2]) == "system:one;user:a;"
    knows = "{# 'developer' #}" + text
    assert ChatTemplate("t", knows).render(chat) == "developer:one;user:a;system:two;"


def test_the_tool_template_renders_requests_with_tools() -> None:
    template = ChatTemplate("t", "plain", "with {{ tools | length }}")
    assert (template.render(CHAT), template.render(CHAT, TOOLS)) == ("plain", "with 1")


def test_an_answer_ends_with_the_checkpoints_end_tokens_and_that_of_a_turn() -> None:
    ends = ChatTemplate("t", CHATML, special_tokens=SPECIAL, token_ids=IDS, end_ids=(9,)).stop_tokens
    assert ends == {9: "", 4: "<|im_end|>", 2: "</s>"}
    assert ChatTemplate("t", PARTS, token_ids=IDS).stop_tokens == {}
    assert ChatTemplate("t", PICKY, token_ids=IDS).stop_tokens == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for %}", r"template 't' is no valid Jinja \(line 1: "),
        ("{{ bos_token }}", "writes bos_token, which it does not define: name the checkpoint's folder"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ChatTemplate("t", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PICKY, "TemplateError: no system turns"),
        ("{{ messages[9].content + 1 }}", "UndefinedError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ range(10 ** 9) | length }}", "OverflowError"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_request(text: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=f"do not fit the chat template 't': {message}"):
        ChatTemplate("t", text).render(CHAT)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        ("hello", "must be a list"),
        ([{"content": "a"}], r"messages\[0\] has no role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"messages\[0\].content is not only text"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}],
            "has 2 parts, which servers join",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}],
            r"tool_calls\[0\] is no function call",
        ),
    ],
)
def test_messages_that_servers_render_differently_are_refused(messages: Any, message: str) -> None:
    with pytest.raises(UnrenderedMessageError, match=message):
        ChatTemplate("t", CHATML).render(messages)


def test_tools_must_be_functions() -> None:
    with pytest.raises(UnrenderedMessageError, match=r"tools\[0\] is no function"):
        ChatTemplate("t", CHATML).render(CHAT, [{"type": "custom", "custom": {"name": "f"}}])
