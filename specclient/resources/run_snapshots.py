"""Accumulates the events of an Assistants run into snapshots and tells which hooks to call; no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: A hook's name and its arguments.
FiredHook = tuple[str, tuple[Any, ...]]

_RUN_STATES = frozenset({"created", "in_progress", "cancelling", "queued"})
_RUN_ENDS = frozenset({"completed", "cancelled", "expired", "failed", "requires_action", "incomplete"})
_STEP_ENDS = frozenset({"completed", "cancelled", "expired", "failed"})


class RunSnapshots:
    """The state of a run, its steps and messages, updated event by event; no I/O."""

    def __init__(self) -> None:
        self.event: Any = None
        self.run: Any = None
        self.steps: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.message: Any = None
        self.step_id: str | None = None
        self._part: tuple[int, Any] | None = None  # index and value of the message part being received
        self._tool: tuple[int, Any] | None = None  # index and value of the tool call being received

    @property
    def step(self) -> Any:
        """The current step; None between steps."""
        return None if self.step_id is None else self.steps[self.step_id]

    def feed(self, event: Any) -> Iterator[FiredHook]:
        """Apply an event, and yield the hooks to call, each as soon as the snapshots have its state."""
        self.event = event
        yield "on_event", (event,)
        name = event.event
        if name.startswith("thread.run.step."):
            yield from self._step(name.removeprefix("thread.run.step."), event.data)
        elif name.startswith("thread.run."):
            yield from self._run(name.removeprefix("thread.run."), event.data)
        elif name.startswith("thread.message."):
            yield from self._message(name.removeprefix("thread.message."), event.data)
        self.event = None

    def _run(self, state: str, run: Any) -> Iterator[FiredHook]:
        if state in _RUN_STATES or state in _RUN_ENDS:
            self.run = run
        if state in _RUN_ENDS and self._tool is not None:
            yield "on_tool_call_done", (self._tool[1],)

    def _message(self, state: str, data: Any) -> Iterator[FiredHook]:
        if state == "created":
            self.message = self.messages[data.id] = data
            yield "on_message_created", (data,)
        elif state == "delta":
            yield from self._message_delta(data.delta)
        elif state in ("completed", "incomplete"):
            self.message = self.messages[data.id] = data
            if self._part is not None:
                yield from _part_done(data.content[self._part[0]])
            yield "on_message_done", (data,)

    def _message_delta(self, delta: Any) -> Iterator[FiredHook]:
        message = self.message
        if message is None:
            raise RuntimeError("Encountered a message delta with no previous snapshot")
        pieces = getattr(delta, "content", None) or []
        known = len(message.content)
        _merge_parts(message, pieces)
        for piece in pieces:
            if piece.index >= known and piece.type == "text":
                yield "on_text_created", (message.content[piece.index].text,)
        for piece in pieces:
            part = message.content[piece.index]
            if piece.type == "text" and getattr(piece, "text", None):
                yield "on_text_delta", (piece.text, part.text)
            if self._part is not None and self._part[0] != piece.index:
                yield from _part_done(self._part[1])
            self._part = (piece.index, part)
        yield "on_message_delta", (delta, message)

    def _step(self, state: str, data: Any) -> Iterator[FiredHook]:
        if state == "created":
            self.steps[data.id] = data
            self.step_id = data.id
            yield "on_run_step_created", (data,)
        elif state == "in_progress":
            self.step_id = data.id
        elif state == "delta":
            yield from self._step_delta(data)
        elif state in _STEP_ENDS:
            if self._tool is not None:
                yield "on_tool_call_done", (self._tool[1],)
            yield "on_run_step_done", (data,)
            self.step_id = None

    def _step_delta(self, data: Any) -> Iterator[FiredHook]:
        step = self.steps[data.id] = _merged(self.steps[data.id], data.delta)
        details = getattr(data.delta, "step_details", None)
        if details is not None and details.type == "tool_calls":
            for piece in getattr(details, "tool_calls", None) or []:
                call = step.step_details.tool_calls[piece.index]
                if self._tool is not None and self._tool[0] == piece.index:
                    yield "on_tool_call_delta", (piece, call)
                else:
                    if self._tool is not None:
                        yield "on_tool_call_done", (self._tool[1],)
                    yield "on_tool_call_created", (call,)
                self._tool = (piece.index, call)
        yield "on_run_step_delta", (data.delta, step)


def _part_done(part: Any) -> Iterator[FiredHook]:
    if part.type == "text":
        yield "on_text_done", (part.text,)
    elif part.type == "image_file":
        yield "on_image_file_done", (part.image_file,)


def _merge_parts(message: Any, pieces: list[Any]) -> None:
    for piece in pieces:
        if piece.index < len(message.content):
            message.content[piece.index] = _merged(message.content[piece.index], piece)
        else:
            message.content.append(piece.model_copy(deep=True))


def _merged(known: Any, delta: Any) -> Any:
    """Return an object with a delta added to it."""
    merged = _grown(known.model_dump(exclude_unset=True), delta.model_dump(exclude_unset=True))
    return type(known).model_validate(merged)


def _grown(known: dict[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """Add a delta: text is appended, objects are merged, list entries are merged by their ``index``."""
    for name, added in delta.items():
        before = known.get(name)
        indexed = isinstance(added, list) and any(
            isinstance(one, Mapping) and "index" in one for one in added
        )
        if before is None and indexed:
            before = []
        if before is None or name in ("index", "type"):
            known[name] = added
        elif isinstance(before, dict) and isinstance(added, Mapping):
            known[name] = _grown(before, added)
        elif isinstance(before, list) and isinstance(added, list):
            known[name] = _grown_list(before, added) if indexed else before + added
        elif isinstance(before, str | int | float) and isinstance(added, str | int | float):
            known[name] = before + added  # type: ignore[operator]  # two strings, or two numbers
    return known


def _grown_list(known: list[Any], added: list[Any]) -> list[Any]:
    for one in added:
        if one["index"] < len(known):
            known[one["index"]] = _grown(known[one["index"]], one)
        else:
            known.append(_grown({}, one))
    return known
