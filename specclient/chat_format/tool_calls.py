"""An incremental parser that splits an answer's text into content and tool calls.

The checkpoint's chat template determines the format:

========  =========================================================  ===========================
hermes    ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``   Hermes, Qwen 2.5 and 3
llama     ``{"name": …, "parameters": {…}}``, sometimes after        Llama 3.1 to 3.3
          ``<|python_tag|>``
mistral   ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``         Mistral, up to tokenizer version 7
mistral   ``[TOOL_CALLS]name[ARGS]{…}``                              Mistral, from tokenizer version 11
========  =========================================================  ===========================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from specclient.chat_format.text_overlap import partial_match_length
from specclient.errors import UnsupportedParameterError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^"{}\[\]]+', re.DOTALL)
_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """How a model family writes tool calls.

    Attributes:
        name: ``hermes``, ``llama`` or ``mistral``.
        start_marker: text that starts a call.
        end_marker: text that ends a call or a list of calls; may be missing at the end of an answer.
        list_start: text that may follow the start marker, before the first call.
        separator: text between two calls that share a start marker.
        arguments_key: key of the arguments in grammars; the parser accepts ``arguments`` and ``parameters``.
        arguments_marker: text between name and arguments, where a call is not one JSON object.
        unmarked: whether an answer may begin with a call without a start marker.
        short_ids: whether call ids must be nine letters or digits, as Mistral's templates require.
    """

    name: str
    start_marker: str
    end_marker: str = ""
    list_start: str = ""
    separator: str = ""
    arguments_key: str = "arguments"
    arguments_marker: str = ""
    unmarked: bool = False
    short_ids: bool = False


HERMES = ToolCallFormat("hermes", "<tool_call>", end_marker="</tool_call>")
LLAMA = ToolCallFormat("llama", "<|python_tag|>", separator=";", arguments_key="parameters", unmarked=True)
MISTRAL = ToolCallFormat(
    "mistral", "[TOOL_CALLS]", end_marker="]", list_start="[", separator=",", short_ids=True
)
MISTRAL_SPLIT = ToolCallFormat("mistral", "[TOOL_CALLS]", arguments_marker="[ARGS]", short_ids=True)


def tool_call_format(template: str, model: str) -> ToolCallFormat:
    """Return the tool call format of a model by its chat template.

    Args:
        template: the checkpoint's Jinja template.
        model: the model's name, for error messages.

    Raises:
        UnsupportedParameterError: the template does not support tools, or its format is unknown.
    """
    if "tools" not in template:
        reason = "its chat template does not support tools; leave them out, or use a model that does"
    elif "[TOOL_CALLS]" in template:
        return MISTRAL_SPLIT if "[ARGS]" in template else MISTRAL
    elif "<tool_call>" in template and "<function=" not in template:
        return HERMES
    elif '"parameters"' in template or "<|python_tag|>" in template:
        return LLAMA
    else:
        reason = (
            "its chat template writes tool calls in an unknown format; supported are Hermes's and "
            "Qwen's <tool_call>, Llama's JSON and Mistral's [TOOL_CALLS]"
        )
    error = UnsupportedParameterError(f"tools are not supported by {model}: {reason}.")
    error.param = "tools"
    raise error


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """An addition to a message: content, the start of a call (its name), or more arguments.

    Attributes:
        content: text outside of calls.
        call: index of the call that ``name`` or ``arguments`` belong to.
        name: the function's name; set once per call.
        arguments: JSON text, as the model wrote it.
    """

    content: str = ""
    call: int | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class ParsedToolCall:
    """A complete call: the function's name, and its arguments as JSON text."""

    name: str
    arguments: str = ""


def collect_deltas(deltas: Iterable[ToolCallDelta]) -> tuple[str, list[ParsedToolCall]]:
    """Concatenate deltas; return the content and the complete calls."""
    content, calls = "", list[ParsedToolCall]()
    for delta in deltas:
        if delta.name is not None:
            calls.append(ParsedToolCall(delta.name))
        if delta.call is not None:
            calls[delta.call].arguments += delta.arguments
        content += delta.content
    return content, calls


class ToolCallParser:
    """Parses the text of one answer.

    Text that looks like a call but is not one becomes content. White space around calls is dropped.
    Arguments are returned incrementally, as soon as the function's name is complete.

    Args:
        form: the model's tool call format.
        names: names of all tools. A call without a start marker counts only if it names one of them.
        max_calls: further calls are dropped; None returns all.

    Attributes:
        calls: index of calls returned so far.
    """

    def __init__(self, form: ToolCallFormat, names: Set[str], max_calls: int | None = None) -> None:
        self.calls = 0
        self._form = form
        self._names = names
        self._max_calls = max_calls
        self._state: Literal["content", "call", "after_call"] = "content"
        self._buffer = ""
        self._no_content = True  # since the beginning of the answer, or since the last call
        self._prefix = ""  # text before the current call's JSON, which is content if there is no call
        self._call = _PartialToolCall(form)
        self._index: int | None = None
        self._arguments_sent = 0

    def push(self, text: str) -> list[ToolCallDelta]:
        """Parse the next piece of text; return what it completes."""
        self._buffer += text
        return list(self._read(last=False))

    def flush(self) -> list[ToolCallDelta]:
        """Return the rest of the buffer; the text ends here, possibly within a call."""
        return list(self._read(last=True))

    def _read(self, *, last: bool) -> Iterator[ToolCallDelta]:
        before = None
        while before != (self._state, self._buffer):
            before = (self._state, self._buffer)
            if self._state == "content":
                yield from self._content(last=last)
            elif self._state == "call":
                yield from self._in_call(last=last)
            else:
                self._after_call(last=last)

    def _content(self, *, last: bool) -> Iterator[ToolCallDelta]:
        """Return text up to a start marker, or up to a possible beginning of one."""
        form, text = self._form, self._buffer.lstrip() if self._no_content and self.calls else self._buffer
        if form.unmarked and self._no_content and not self.calls and text.lstrip().startswith("{"):
            self._begin(text[: text.index("{")], text[text.index("{") :])
            return
        at = text.find(form.start_marker)
        if at >= 0:
            out = text[:at].rstrip()
            self._begin(text[len(out) : at + len(form.start_marker)], text[at + len(form.start_marker) :])
        else:
            out = text if last else text[: len(text) - partial_match_length(text, form.start_marker)].rstrip()
            self._buffer = text[len(out) :]
        if out:
            self._no_content = False
            yield ToolCallDelta(content=out)

    def _begin(self, prefix: str, rest: str) -> None:
        self._state, self._prefix, self._buffer = "call", prefix, rest
        self._call, self._index, self._arguments_sent = _PartialToolCall(self._form), None, 0

    def _after_call(self, *, last: bool) -> None:
        """Determine what follows a call: another call, or content."""
        form, rest = self._form, self._buffer.lstrip()
        if form.separator and rest.startswith(form.separator):
            self._begin(form.separator, rest[len(form.separator) :])
        elif form.end_marker and rest.startswith(form.end_marker):
            self._state, self._buffer, self._no_content = "content", rest[len(form.end_marker) :], True
        elif last or (rest and not form.end_marker.startswith(rest)):
            self._state, self._buffer, self._no_content = "content", rest, True

    def _in_call(self, *, last: bool) -> Iterator[ToolCallDelta]:
        call = self._call
        call.push(self._buffer)
        self._buffer = ""
        if self._index is None and self._is_content(last=last):
            self._state, self._no_content = "content", False
            yield ToolCallDelta(content=self._prefix + call.text)
            return
        if call.name is None:
            return
        index = self.calls if self._index is None else self._index
        wanted = self._max_calls is None or index < self._max_calls
        if self._index is None:
            self._index = index
            if wanted:
                self.calls += 1
                yield ToolCallDelta(call=index, name=call.name)
        arguments = call.arguments()
        new, self._arguments_sent = arguments[self._arguments_sent :], len(arguments)
        if new and wanted:
            yield ToolCallDelta(call=index, arguments=new)
        if call.end is not None:
            self._state, self._buffer = "after_call", call.text[call.end :]

    def _is_content(self, *, last: bool) -> bool:
        """Return whether the text that looked like a call is content."""
        call, marked = self._call, bool(self._prefix.strip())
        if call.name is not None:
            return not marked and call.name not in self._names
        return last or call.broken or call.end is not None


@dataclass(slots=True)
class _PartialToolCall:
    """A call that may be incomplete.

    Attributes:
        form: the model's tool call format.
        text: the text so far, which may extend beyond the call.
        name: the function's name; None until it is known.
        end: index in ``text`` after the call; None until it is known.
        broken: whether the text cannot be a call.
    """

    form: ToolCallFormat
    text: str = ""
    name: str | None = None
    end: int | None = None
    broken: bool = False
    _brace: int | None = None
    _position: int = 0  # of the next token in ``text``
    _depth: int = 0  # open braces and brackets
    _arguments_start: int | None = None
    _arguments_end: int | None = None
    _complete_arguments: str = ""  # where they cannot be read incrementally

    def push(self, text: str) -> None:
        """Parse the next piece of text."""
        self.text += text
        if self._brace is None:
            self._find_brace()
        if self._brace is None or self.end is not None:
            return
        if self.name is None and (head := _HEAD.match(self.text, self._brace)) is not None:
            self.name, self._arguments_start = json.loads(head[1], strict=False), head.end()
        while self.end is None and (found := _TOKEN.match(self.text, self._position)) is not None:
            self._position = found.end()
            self._depth += (found[0] in ("{", "[")) - (found[0] in ("}", "]"))
            surrounding = 0 if self.form.arguments_marker else 1
            if (
                self._arguments_start is not None
                and self._position > self._arguments_start
                and self._depth <= surrounding
            ):
                self._arguments_end = self._position if self._arguments_end is None else self._arguments_end
            if self._depth <= 0:
                self.end = self._position
        if self.end is not None and self.name is None:
            self._read_complete()

    def arguments(self) -> str:
        """Return the JSON text of the arguments so far."""
        return (
            self._complete_arguments
            if self._arguments_start is None
            else self.text[self._arguments_start : self._arguments_end]
        )

    def _find_brace(self) -> None:
        """Skip the text before the first brace; in some formats it is the name."""
        form, rest = self.form, self.text.lstrip()
        if form.arguments_marker:
            name, split, rest = self.text.partition(form.arguments_marker)
            rest = rest.lstrip()
            if not (split and rest):
                return
            self.name = name.strip() or None
        elif form.list_start and rest.startswith(form.list_start):
            rest = rest[len(form.list_start) :].lstrip()
        if rest.startswith("{") and (self.name or not form.arguments_marker):
            self._position = self._brace = len(self.text) - len(rest)
            self._arguments_start = self._brace if form.arguments_marker else None
        else:
            self.broken, self.name = bool(rest), None

    def _read_complete(self) -> None:
        """Read a complete call whose fields are in another order, or whose arguments are not an object."""
        try:
            fields = json.loads(self.text[self._brace : self.end], strict=False)
        except ValueError:
            return
        name = fields.get("name")
        arguments: object = next((fields[key] for key in ("arguments", "parameters") if key in fields), {})
        if isinstance(name, str):
            self.name = name
            self._complete_arguments = (
                arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            )
