"""Chat templates: Jinja texts that render a conversation as the prompt of a model.

The environment is that of the ``transformers`` library (its documentation, "Chat templates"), because
checkpoints are published for it: a sandbox, blocks trimmed, loop controls, the filter ``tojson``, and the
functions ``raise_exception`` and ``strftime_now``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specclient.chat_format.messages import template_messages, template_tools
from specclient.errors import BadRequestError, ConfigurationError

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

#: Content that a model's answer certainly has not, to find what a template writes after an answer.
_ANSWER = "answer-7f3a"


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with what it needs of its checkpoint.

    Attributes:
        name: the folder, file or hub id that it was read from, for errors.
        text: the Jinja text; ``tool_text``: that for requests with tools, where the checkpoint has one.
        special_tokens: texts of special tokens by the names that templates use (``bos_token``).
        token_ids: ids of added tokens by their text; empty where the tokenizer is not known.
        end_ids: ids that end an answer by the checkpoint's files.

    Raises:
        ConfigurationError: jinja2 is not installed, the text is no template, or it needs a special token
            that is not known.
    """

    name: str
    text: str = field(repr=False)
    tool_text: str | None = field(default=None, repr=False)
    special_tokens: Mapping[str, Any] = field(default_factory=dict)
    token_ids: Mapping[str, int] = field(default_factory=dict, repr=False)
    end_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        from jinja2 import TemplateSyntaxError, meta  # noqa: PLC0415 - optional, and slow to import

        for text in filter(None, (self.text, self.tool_text)):
            try:
                read = meta.find_undeclared_variables(self._environment.parse(text))
            except TemplateSyntaxError as error:
                raise ConfigurationError(
                    f"template {self.name!r} is no valid Jinja (line {error.lineno}: {error.message})"
                ) from None
            unknown = sorted({"bos_token", "eos_token"} & read - self.special_tokens.keys())
            if unknown:
                raise ConfigurationError(
                    f"template {self.name!r} writes {' and '.join(unknown)}, which it does not define: name "
                    "the checkpoint's folder or hub id, or put its tokenizer_config.json beside the file"
                )

    def render(
        self,
        messages: object,
        tools: object = None,
        *,
        more: Mapping[str, Any] | None = None,
        answers: bool = True,
    ) -> str:
        """Return a conversation as the text of a prompt, special tokens included.

        Args:
            messages, tools: in OpenAI's format.
            more: further variables of the template, such as ``enable_thinking``.
            answers: whether the prompt ends with the beginning of the model's answer.

        Raises:
            BadRequestError: the template refuses the messages, or fails.
            UnrenderedMessageError: see :func:`specclient.chat_format.messages.template_messages`.
        """
        text = self.text_for(tools)
        template = self._environment.from_string(text)
        conversation = template_messages(messages, parts=_reads_parts(self._environment.parse(text)))
        if "developer" not in text:
            conversation = _with_system_role(conversation)
        functions = template_tools(tools) or None
        try:
            return template.render(
                **self.special_tokens,
                **(more or {}),
                messages=conversation,
                tools=functions,
                documents=None,
                add_generation_prompt=answers,
            )
        except Exception as error:  # a template may raise whatever Python raises
            raise BadRequestError(
                f"messages do not fit the chat template {self.name!r}: {type(error).__name__}: {error}"
            ) from error

    def text_for(self, tools: object) -> str:
        """Return the Jinja text for a request with these tools."""
        return self.tool_text if tools and self.tool_text else self.text

    @cached_property
    def stop_tokens(self) -> Mapping[int, str]:
        """The tokens that end an answer, with their texts: the checkpoint's, and that which ends a turn."""
        texts = {number: text for text, number in self.token_ids.items()}
        ends = {number: texts.get(number, "") for number in self.end_ids}
        for text in filter(None, (self._turn_end, self.special_tokens.get("eos_token"))):
            if (number := self.token_ids.get(text)) is not None:
                ends[number] = text
        return ends

    @property
    def _turn_end(self) -> str | None:
        """The token that the template writes after an answer; None where it writes text, or nothing."""
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _ANSWER}]
        try:
            rendered = self.render(turns, answers=False)
        except BadRequestError:
            return None
        after = rendered.rpartition(_ANSWER)[2].lstrip()
        return max((token for token in self.token_ids if after.startswith(token)), key=len, default=None)

    @cached_property
    def _environment(self) -> Environment:
        try:
            return _environment()
        except ImportError:
            raise ConfigurationError(
                f"template {self.name!r} needs jinja2: pip install 'specclient[templates]'"
            ) from None


def _environment() -> Environment:
    """Return the environment that templates are written for."""
    from jinja2 import TemplateError  # noqa: PLC0415 - as above
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class GenerationTag(Extension):
        """``{% generation %}`` marks the assistant's text for training; here it has no effect."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own form

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)  # noqa: DTZ005 - templates print the local date

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of jinja2's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _with_system_role(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages for a template without the role ``developer``: one system message, the first."""
    if not any(message["role"] == "developer" for message in messages):
        return list(messages)
    turns = [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]
    system = [each for each in turns if each["role"] == "system"]
    if len(system) == 1 and turns[0] is system[0]:
        return turns
    contents = [each["content"] for each in system]
    texts = [text if isinstance(text, str) else "\n".join(part["text"] for part in text) for text in contents]
    first = {"role": "system", "content": "\n\n".join(filter(None, texts))}
    return [first, *(each for each in turns if each["role"] != "system")]


def _reads_parts(template: nodes.Template) -> bool:
    """Return whether a template loops over a message's content, and so reads a list of parts.

    Servers give a template texts or lists by this (vLLM and SGLang, "content format").
    """
    from jinja2 import nodes  # noqa: PLC0415 - as above

    def names(node: nodes.Node) -> Iterator[str]:
        if isinstance(node, nodes.Name):
            yield node.name
        elif isinstance(node, nodes.Getattr):
            yield node.attr
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            yield str(node.arg.value)

    return any("content" in names(loop.iter) for loop in template.find_all(nodes.For))
