"""The program of the helper process that renders chat templates.

A checkpoint's template is a Jinja program. It can loop, recurse and take memory without end, even within one
operation that no code of the same process could interrupt. It runs in Jinja's sandbox, in the environment
that ``transformers`` 5 makes for templates: its filters, functions and names of a message's reasoning. The
library itself takes a second to import. The file imports nothing of the package; see
:mod:`specclient_local.model.helper_worker`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.ext import Extension
    from jinja2.utils import Namespace

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning; templates read the first, those of gpt-oss the second."""


def prepare(_settings: dict[str, Any]) -> None:
    """Import the library, before memory and time are limited."""
    import jinja2.ext  # noqa: PLC0415 - after the path is set
    import jinja2.sandbox  # noqa: F401, PLC0415


def answer(message: dict[str, Any]) -> dict[str, str]:
    """Render a chat; return ``{"text": …}``, or ``{"error": …}`` with the exception's class and message."""
    try:
        text: str = _compiled(message["template"]).render(
            messages=[_with_reasoning(each) for each in message["messages"]],
            tools=message["tools"],
            documents=None,
            add_generation_prompt=True,
            **message["special"],
        )
        if len(text) > message["most_characters"]:
            return {"error": f"the text has {len(text)} characters; at most {message['most_characters']}"}
        text.encode()  # a template may cut a character in two
    except Exception as error:  # noqa: BLE001 - a template may raise any exception
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"text": text}


def _with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its reasoning under the names that templates read."""
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    """Return a template, compiled in the environment that templates are written for."""
    from jinja2.exceptions import TemplateError  # noqa: PLC0415 - after the path is set
    from jinja2.ext import loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    def raise_exception(text: str) -> None:
        raise TemplateError(text)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)  # noqa: DTZ005 - templates print the local date

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation_block(), loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
        "dict": _DictFunction(),
        "namespace": _public_namespace(),
    }
    return environment.from_string(template)


def _generation_block() -> type[Extension]:
    """Return the extension for ``{% generation %}``, which marks the assistant's text for training."""
    from jinja2 import nodes  # noqa: PLC0415 - after the path is set
    from jinja2.ext import Extension  # noqa: PLC0415

    class GenerationBlock(Extension):
        """The block has no effect here."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own form

        def parse(self, parser: Any) -> nodes.Node:
            """Return a block with a scope of its own, as that of ``transformers`` has."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

        def _text(self, caller: Any) -> str:
            return str(caller())

    return GenerationBlock


def _public_namespace() -> type[Namespace]:
    """Return the class of namespaces that keep no attribute whose name begins with an underscore."""
    from jinja2 import utils  # noqa: PLC0415 - after the path is set

    class PublicNamespace(utils.Namespace):
        """A namespace of a template."""

        def __init__(*args: Any, **kwargs: Any) -> None:  # ``self`` may be an attribute
            own, *given = args
            attributes = dict(*given, **kwargs)
            for name in attributes:
                _check_public(name)
            utils.Namespace.__init__(own, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_public(name)
            super().__setitem__(name, value)

    return PublicNamespace


def _check_public(name: object) -> None:
    from jinja2.exceptions import SecurityError  # noqa: PLC0415 - after the path is set

    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespaces keep no attribute whose name begins with an underscore: {name!r}")


class _DictFunction:
    """``dict`` without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return a dictionary of keys with one value."""
        return dict.fromkeys(*args)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of the library's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
