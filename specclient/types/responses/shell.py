"""What a response runs: programs in a container, commands in a shell, changes of files."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.responses.calls import Caller
from specclient.types.tagged_union import TaggedUnion


class OutputLogs(WireModel):
    """What a program printed."""

    logs: str
    type: Literal["logs"]


class OutputImage(WireModel):
    """An image that a program made."""

    type: Literal["image"]
    url: str


Output = Annotated[OutputLogs | OutputImage, TaggedUnion("type")]


class ResponseCodeInterpreterToolCall(WireModel):
    """A program that ran in a container."""

    id: str
    code: str | None = None
    container_id: str
    outputs: list[Output] | None = None
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    type: Literal["code_interpreter_call"]


class ResponseContainerReference(WireModel):
    """The container that it ran in."""

    container_id: str
    type: Literal["container_reference"]


class ResponseLocalEnvironment(WireModel):
    """That it ran on the machine of the caller."""

    type: Literal["local"]


class ShellAction(WireModel):
    """Commands, and how long and how much they may say (in ms and characters)."""

    commands: list[str]
    max_output_length: int | None = None
    timeout_ms: int | None = None


Environment = Annotated[ResponseLocalEnvironment | ResponseContainerReference | None, TaggedUnion("type")]


class ResponseFunctionShellToolCall(WireModel):
    """Commands for a shell."""

    id: str
    action: ShellAction
    call_id: str
    environment: Environment | None = None
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["shell_call"]
    caller: Caller | None = None
    created_by: str | None = None


class OutputOutcomeTimeout(WireModel):
    """That a command took too long."""

    type: Literal["timeout"]


class OutputOutcomeExit(WireModel):
    """How a command ended."""

    exit_code: int
    type: Literal["exit"]


OutputOutcome = Annotated[OutputOutcomeTimeout | OutputOutcomeExit, TaggedUnion("type")]


class ShellOutput(WireModel):
    """What a command printed."""

    outcome: OutputOutcome
    stderr: str
    stdout: str
    created_by: str | None = None


class ResponseFunctionShellToolCallOutput(WireModel):
    """What the commands for a shell printed."""

    id: str
    call_id: str
    max_output_length: int | None = None
    output: list[ShellOutput]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["shell_call_output"]
    caller: Caller | None = None
    created_by: str | None = None


class OperationCreateFile(WireModel):
    """A new file, as a diff."""

    diff: str
    path: str
    type: Literal["create_file"]


class OperationDeleteFile(WireModel):
    """The removal of a file."""

    path: str
    type: Literal["delete_file"]


class OperationUpdateFile(WireModel):
    """The change of a file, as a diff."""

    diff: str
    path: str
    type: Literal["update_file"]


Operation = Annotated[OperationCreateFile | OperationDeleteFile | OperationUpdateFile, TaggedUnion("type")]


class ResponseApplyPatchToolCall(WireModel):
    """A change of files."""

    id: str
    call_id: str
    operation: Operation
    status: Literal["in_progress", "completed"]
    type: Literal["apply_patch_call"]
    caller: Caller | None = None
    created_by: str | None = None


class ResponseApplyPatchToolCallOutput(WireModel):
    """How a change of files went."""

    id: str
    call_id: str
    status: Literal["completed", "failed"]
    type: Literal["apply_patch_call_output"]
    caller: Caller | None = None
    created_by: str | None = None
    output: str | None = None
