"""What a response does on a computer, and what it then sees."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.tagged_union import TaggedUnion


class Click(WireModel):
    """A click at a place, in pixels."""

    button: Literal["left", "right", "wheel", "back", "forward"]
    type: Literal["click"]
    x: int
    y: int
    keys: list[str] | None = None


class DoubleClick(WireModel):
    """A double click at a place, in pixels."""

    keys: list[str] | None = None
    type: Literal["double_click"]
    x: int
    y: int


class DragPath(WireModel):
    """A place that a drag goes through, in pixels."""

    x: int
    y: int


class Drag(WireModel):
    """A drag along a path."""

    path: list[DragPath]
    type: Literal["drag"]
    keys: list[str] | None = None


class Keypress(WireModel):
    """Keys, pressed together."""

    keys: list[str]
    type: Literal["keypress"]


class Move(WireModel):
    """A move of the mouse to a place, in pixels."""

    type: Literal["move"]
    x: int
    y: int
    keys: list[str] | None = None


class Screenshot(WireModel):
    """The taking of a screenshot."""

    type: Literal["screenshot"]


class Scroll(WireModel):
    """A scroll at a place, by distances in pixels."""

    scroll_x: int
    scroll_y: int
    type: Literal["scroll"]
    x: int
    y: int
    keys: list[str] | None = None


class Type(WireModel):
    """Text, typed."""

    text: str
    type: Literal["type"]


class Wait(WireModel):
    """A wait."""

    type: Literal["wait"]


ComputerAction = Annotated[
    Click | DoubleClick | Drag | Keypress | Move | Screenshot | Scroll | Type | Wait, TaggedUnion("type")
]


ComputerActionList = list[ComputerAction]


class PendingSafetyCheck(WireModel):
    """Something that a person has to confirm."""

    id: str
    code: str | None = None
    message: str | None = None


class ResponseComputerToolCall(WireModel):
    """What is to be done on a computer."""

    id: str
    call_id: str
    pending_safety_checks: list[PendingSafetyCheck]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["computer_call"]
    action: ComputerAction | None = None
    actions: ComputerActionList | None = None


class ResponseComputerToolCallOutputScreenshot(WireModel):
    """A screenshot, by URL or file id."""

    type: Literal["computer_screenshot"]
    file_id: str | None = None
    image_url: str | None = None


class AcknowledgedSafetyCheck(WireModel):
    """Something that a person has confirmed."""

    id: str
    code: str | None = None
    message: str | None = None


class ResponseComputerToolCallOutputItem(WireModel):
    """What a computer shows after what was done."""

    id: str
    call_id: str
    output: ResponseComputerToolCallOutputScreenshot
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    type: Literal["computer_call_output"]
    acknowledged_safety_checks: list[AcknowledgedSafetyCheck] | None = None
    created_by: str | None = None
