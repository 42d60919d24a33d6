"""Turn the text of an answer into content and tool calls, piece by piece, in the form a model was taught.

Which form that is stands in the checkpoint's chat template:

========  =========================================================  ===========================
hermes    ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``   Hermes, Qwen 2.5 and 3
llama     ``{"name": …, "parameters": {…}}``, at times behind        Llama 3.1 to 3.3
          ``<|python_tag|>``
mistral   ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``         Mistral, until its tokenizer 7
mistral   ``[TOOL_CALLS]name[ARGS]{…}``                              Mistral, from its tokenizer 11
========  =========================================================  ===========================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from specclient.errors import UnsupportedParameterError
from specclient_local.model.text_overlap import partial_match_length

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^"{}\[\]]+', re.DOTALL)
_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """How a family of models writes tool calls.

    Attributes:
        opens: what announces a call; ``closes``: what may follow it, and ends the calls.
        lead: what may stand between the announcement and the first call.
        again: what joins a call to the next one, without a new announcement.
        key: how the arguments are called where this side writes them; both names are read.
        split: what parts the name from the arguments where they are no fields of one object.
        bare: whether an answer may begin with a call that nothing announces.
        brief: whether ids must have nine letters or digits, as Mistral's templates insist.
    """

    name: str
    opens: str
    closes: str = ""
    lead: str = ""
    again: str = ""
    key: str = "arguments"
    split: str = ""
    bare: bool = False
    brief: bool = False


HERMES = ToolCallFormat("hermes", "<tool_call>", closes="</tool_call>")
LLAMA = ToolCallFormat("llama", "<|python_tag|>", again=";", key="parameters", bare=True)
MISTRAL = ToolCallFormat("mistral", "[TOOL_CALLS]", closes="]", lead="[", again=",", brief=True)
MISTRAL_SPLIT = ToolCallFormat("mistral", "[TOOL_CALLS]", split="[ARGS]", brief=True)


def tool_call_format(template: str, model: str) -> ToolCallFormat:
    """Tell by a chat template how its model writes tool calls.

    Args:
        template: as the checkpoint has it.
        model: for messages only.

    Raises:
        UnsupportedParameterError: the template has no place for tools, or its form is none of these.
    """
    if "tools" not in template:
        reason = (
            "its chat template knows no tools; leave them out, or use a model that was taught to call them"
        )
    elif "[TOOL_CALLS]" in template:
        return MISTRAL_SPLIT if "[ARGS]" in template else MISTRAL
    elif "<tool_call>" in template and "<function=" not in template:
        return HERMES
    elif '"parameters"' in template or "<|python_tag|>" in template:
        return LLAMA
    else:
        reason = (
            "its chat template writes tool calls in a form that is not known here; known are Hermes's and "
            "Qwen's <tool_call>, Llama's JSON and Mistral's [TOOL_CALLS]"
        )
    error = UnsupportedParameterError(f"tools are not supported by local/{model}: {reason}.")
    error.param = "tools"
    raise error


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """What a piece of text adds to a message: content, a call's beginning (its name), or more arguments.

    Attributes:
        content: text that belongs to no call.
        call: the number of the call that ``name`` or ``arguments`` belong to.
        name: of the function; once a call.
        arguments: JSON, as the model wrote it.
    """

    content: str = ""
    call: int | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class ParsedToolCall:
    """A whole call: the function's name, and its arguments as JSON text."""

    name: str
    arguments: str = ""


def collect_deltas(deltas: Iterable[ToolCallDelta]) -> tuple[str, list[ParsedToolCall]]:
    """Return the content and the calls that deltas add up to."""
    content, calls = "", list[ParsedToolCall]()
    for delta in deltas:
        if delta.name is not None:
            calls.append(ParsedToolCall(delta.name))
        if delta.call is not None:
            calls[delta.call].arguments += delta.arguments
        content += delta.content
    return content, calls


class ToolCallParser:
    """Reads one answer. What only looked like a call, and turns out to be none, is content.

    White space around calls is dropped. Arguments go out as they come, as soon as the name is known.

    Args:
        form: how calls are written.
        names: of the tools there are: what nothing announces is a call only if it names one of them.
        most: calls told at most; those beyond are left out. None tells all.

    Attributes:
        calls: how many were told.
    """

    def __init__(self, form: ToolCallFormat, names: Set[str], most: int | None = None) -> None:
        self.calls = 0
        self._form = form
        self._names = names
        self._most = most
        self._state: Literal["content", "call", "gap"] = "content"
        self._held = ""
        self._silent = True  # since the beginning, or since the last call
        self._lead = ""
        self._call = _PartialToolCall(form)
        self._number: int | None = None
        self._told = 0

    def push(self, text: str) -> list[ToolCallDelta]:
        """Return what a piece of text makes known."""
        self._held += text
        return list(self._read(last=False))

    def flush(self) -> list[ToolCallDelta]:
        """Return what was held back; the text ends here, perhaps within a call."""
        return list(self._read(last=True))

    def _read(self, *, last: bool) -> Iterator[ToolCallDelta]:
        before = None
        while before != (self._state, self._held):
            before = (self._state, self._held)
            if self._state == "content":
                yield from self._content(last=last)
            elif self._state == "call":
                yield from self._in_call(last=last)
            else:
                self._gap(last=last)

    def _content(self, *, last: bool) -> Iterator[ToolCallDelta]:
        """Let text out up to what announces a call, or may be the beginning of that."""
        form, held = self._form, self._held.lstrip() if self._silent and self.calls else self._held
        if form.bare and self._silent and not self.calls and held.lstrip().startswith("{"):
            self._begin(held[: held.index("{")], held[held.index("{") :])
            return
        at = held.find(form.opens)
        if at >= 0:
            out = held[:at].rstrip()
            self._begin(held[len(out) : at + len(form.opens)], held[at + len(form.opens) :])
        else:
            out = held if last else held[: len(held) - partial_match_length(held, form.opens)].rstrip()
            self._held = held[len(out) :]
        if out:
            self._silent = False
            yield ToolCallDelta(content=out)

    def _begin(self, lead: str, rest: str) -> None:
        self._state, self._lead, self._held = "call", lead, rest
        self._call, self._number, self._told = _PartialToolCall(self._form), None, 0

    def _gap(self, *, last: bool) -> None:
        """Look what follows a call: another one, or content."""
        form, rest = self._form, self._held.lstrip()
        if form.again and rest.startswith(form.again):
            self._begin(form.again, rest[len(form.again) :])
        elif form.closes and rest.startswith(form.closes):
            self._state, self._held, self._silent = "content", rest[len(form.closes) :], True
        elif last or (rest and not form.closes.startswith(rest)):
            self._state, self._held, self._silent = "content", rest, True

    def _in_call(self, *, last: bool) -> Iterator[ToolCallDelta]:
        call = self._call
        call.push(self._held)
        self._held = ""
        if self._number is None and self._is_none(last=last):
            self._state, self._silent = "content", False
            yield ToolCallDelta(content=self._lead + call.text)
            return
        if call.name is None:
            return
        number = self.calls if self._number is None else self._number
        told = self._most is None or number < self._most
        if self._number is None:
            self._number = number
            if told:
                self.calls += 1
                yield ToolCallDelta(call=number, name=call.name)
        arguments = call.arguments()
        new, self._told = arguments[self._told :], len(arguments)
        if new and told:
            yield ToolCallDelta(call=number, arguments=new)
        if call.end is not None:
            self._state, self._held = "gap", call.text[call.end :]

    def _is_none(self, *, last: bool) -> bool:
        """Whether what seemed to be a call is none."""
        call, announced = self._call, bool(self._lead.strip())
        if call.name is not None:
            return not announced and call.name not in self._names
        return last or call.broken or call.end is not None


@dataclass(slots=True)
class _PartialToolCall:
    """One call as far as it has come.

    Attributes:
        text: all that came.
        name: once it is known.
        end: the place behind the call, once it is known.
        broken: whether it begins as no call does.
    """

    form: ToolCallFormat
    text: str = ""
    name: str | None = None
    end: int | None = None
    broken: bool = False
    _brace: int | None = None
    _at: int = 0
    _depth: int = 0
    _begins: int | None = None
    _ends: int | None = None
    _whole: str = ""

    def push(self, text: str) -> None:
        """Read on."""
        self.text += text
        if self._brace is None:
            self._find_brace()
        if self._brace is None or self.end is not None:
            return
        if self.name is None and (head := _HEAD.match(self.text, self._brace)) is not None:
            self.name, self._begins = json.loads(head[1], strict=False), head.end()
        while self.end is None and (found := _TOKEN.match(self.text, self._at)) is not None:
            self._at = found.end()
            self._depth += (found[0] in ("{", "[")) - (found[0] in ("}", "]"))
            surrounding = 0 if self.form.split else 1
            if self._begins is not None and self._at > self._begins and self._depth <= surrounding:
                self._ends = self._at if self._ends is None else self._ends
            if self._depth <= 0:
                self.end = self._at
        if self.end is not None and self.name is None:
            self._read_whole()

    def arguments(self) -> str:
        """Return the arguments as far as they are known."""
        return self._whole if self._begins is None else self.text[self._begins : self._ends]

    def _find_brace(self) -> None:
        """Skip what may stand before the first brace; in some forms that is the name."""
        form, rest = self.form, self.text.lstrip()
        if form.split:
            name, split, rest = self.text.partition(form.split)
            rest = rest.lstrip()
            if not (split and rest):
                return
            self.name = name.strip() or None
        elif form.lead and rest.startswith(form.lead):
            rest = rest[len(form.lead) :].lstrip()
        if rest.startswith("{") and (self.name or not form.split):
            self._at = self._brace = len(self.text) - len(rest)
            self._begins = self._brace if form.split else None
        else:
            self.broken, self.name = bool(rest), None

    def _read_whole(self) -> None:
        """Read the fields of a complete call that come in another order, or with other arguments."""
        try:
            fields = json.loads(self.text[self._brace : self.end], strict=False)
        except ValueError:
            return
        name = fields.get("name")
        arguments: object = next((fields[key] for key in ("arguments", "parameters") if key in fields), {})
        if isinstance(name, str):
            self.name = name
            self._whole = (
                arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            )
