"""Hostile chat templates: an endless, greedy or crashing one is an error, and the next chat is rendered."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from specclient_local.model.chat_template import ChatRenderer

from specclient.errors import BadRequestError

HI = [{"role": "user", "content": "hi", "name": None}]
GOOD = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.name }}{% endfor %}"


@pytest.fixture(scope="module")
def renderer() -> Iterator[ChatRenderer]:
    made = ChatRenderer(seconds=0.5, memory_bytes=2**29)
    yield made
    made.close()


HOSTILE = {
    "endless": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
        "{% endfor %}{% endfor %}{% endfor %}",
        "takes more than 0.5 s",
    ),
    "a number": ("{{ (9 ** 9) ** (9 ** 9) }}", "takes more than 0.5 s|do not fit|crashes"),
    "memory": ("{{ ('x' * 2000000000) | length }}", "MemoryError|memory"),
    "a list": ("{% set a = [0] * 900000000 %}{{ a | length }}", "MemoryError|memory"),
    "a filter": ("{{ 'x' | center(2000000000) }}", "MemoryError|memory"),
    "growth": (
        "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "MemoryError|memory|OverflowError|characters|takes more",
    ),
    "a long text": ("{{ 'x' * 80000000 }}", "at most 67108864|takes more|MemoryError"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError|crashes"),
    "nesting": (
        "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
        "RecursionError|crashes|memory|takes more",
    ),
    "nested lists": ("{{ " + "[" * 5000 + "]" * 5000 + " }}", "RecursionError|crashes|Error"),
    "no template": ("{% if %}", "TemplateSyntaxError"),
    "an attribute": ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "SecurityError|Undefined"),
    "half a character": ("{{ '\\ud800' }}", "UnicodeEncodeError"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_an_error_and_the_next_one_is_rendered(
    renderer: ChatRenderer, kind: str
) -> None:
    template, why = HOSTILE[kind]
    with pytest.raises(BadRequestError, match=why):
        renderer.render(template, HI, (), {"bos_token": "<s>"})
    assert renderer.render(GOOD, HI, (), {"bos_token": "<s>"}) == "<s>user: hi"


def test_the_process_stays_and_is_replaced_when_something_else_ends_it(renderer: ChatRenderer) -> None:
    renderer.render(GOOD, HI, (), {})
    pid = renderer.pid
    renderer.render(GOOD, HI, (), {})
    assert renderer.pid == pid is not None
    os.kill(pid, 9)
    while renderer.pid is not None:
        time.sleep(0.01)
    assert renderer.render(GOOD, HI, (), {}) == "user: hi"
    assert renderer.pid not in (None, pid)


def test_tools_and_errors_of_the_template_arrive(renderer: ChatRenderer) -> None:
    tools = [{"type": "function", "function": {"name": "sky", "parameters": {"é": [1, None, True]}}}]
    found = renderer.render("{{ tools | tojson }}", HI, tools, {})
    assert '"é": [1, null, true]' in found
    with pytest.raises(BadRequestError, match=r"do not fit .* roles must alternate"):
        renderer.render("{{ raise_exception('roles must alternate') }}", HI, (), {})


TOOLS = [{"type": "function", "function": {"name": "sky", "parameters": {"é<": [1, None, True]}}}]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hi <b>"}]},
    {"role": "assistant", "content": "ho", "reasoning": "because"},
]
SAME = {
    "blocks": "{% for m in messages %}\n  {% if loop.first %}{{ bos_token }}{% endif %}\n  {{ m.role }}\n"
    "{% endfor %}",
    "tojson": "{{ tools | tojson }}{{ messages | tojson(indent=2, sort_keys=true) }}",
    "reasoning": "{{ messages[2].reasoning_content }}{{ messages[2].thinking }}{{ messages[2].reasoning }}",
    "namespace": "{% set n = namespace(a=1, self=2) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ n.self }}",
    "private": "{% set n = namespace(a=1) %}{% set n._a = 2 %}",
    "private at once": "{% set n = namespace(_a=1) %}",
    "dict": "{{ dict(a=1, b=2) }}{{ dict.fromkeys(['x'], 3) }}",
    "dict's class": "{{ dict.__class__ }}{{ dict.__subclasses__() }}",
    "generation": "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "loops": "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
    "{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "time": "{{ strftime_now('%Y-%m-%d') }}",
    "prompt": "{% if add_generation_prompt %}assistant:{% endif %}{{ documents }}{{ unknown }}",
    "error": "{{ raise_exception('no') }}",
    "changed": "{{ messages.append(1) }}",
    "syntax": "{% for %}",
}


@pytest.mark.parametrize("name", SAME)
def test_templates_are_rendered_as_transformers_renders_them(renderer: ChatRenderer, name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    def theirs() -> str:
        try:
            found, _ = render_jinja_template(
                conversations=[CHAT],
                tools=TOOLS,
                chat_template=SAME[name],
                add_generation_prompt=True,
                bos_token="<s>",
            )
        except Exception as error:  # noqa: BLE001 - its class is compared
            return f"messages do not fit the model's chat template: {type(error).__name__}"
        return str(found[0])

    try:
        own = renderer.render(SAME[name], CHAT, TOOLS, {"bos_token": "<s>"})
    except BadRequestError as error:
        own = ":".join(str(error).split(":")[:2])
    assert own == theirs()


def test_no_more_than_the_template_library_is_imported(renderer: ChatRenderer) -> None:
    renderer.render(GOOD, HI, (), {})
    maps = Path(f"/proc/{renderer.pid}/maps")
    if not maps.exists():
        pytest.skip("the system does not list the libraries of a process")
    assert "numpy" not in maps.read_text()
