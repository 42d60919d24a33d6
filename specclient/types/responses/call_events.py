"""The events of a streamed response that tell how its tool calls go."""

from __future__ import annotations

from typing import Literal

from specclient.types.base import WireModel
from specclient.types.responses.shell import ShellOutput


class ResponseCodeInterpreterCallCodeDeltaEvent(WireModel):
    """The event ``response.code_interpreter_call_code.delta``."""

    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.code_interpreter_call_code.delta"]


class ResponseCodeInterpreterCallCodeDoneEvent(WireModel):
    """The event ``response.code_interpreter_call_code.done``."""

    code: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.code_interpreter_call_code.done"]


class ResponseCodeInterpreterCallCompletedEvent(WireModel):
    """The event ``response.code_interpreter_call.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.code_interpreter_call.completed"]


class ResponseCodeInterpreterCallInProgressEvent(WireModel):
    """The event ``response.code_interpreter_call.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.code_interpreter_call.in_progress"]


class ResponseCodeInterpreterCallInterpretingEvent(WireModel):
    """The event ``response.code_interpreter_call.interpreting``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.code_interpreter_call.interpreting"]


class ResponseCustomToolCallInputDeltaEvent(WireModel):
    """The event ``response.custom_tool_call_input.delta``."""

    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.custom_tool_call_input.delta"]


class ResponseCustomToolCallInputDoneEvent(WireModel):
    """The event ``response.custom_tool_call_input.done``."""

    input: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.custom_tool_call_input.done"]


class ResponseFileSearchCallCompletedEvent(WireModel):
    """The event ``response.file_search_call.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.file_search_call.completed"]


class ResponseFileSearchCallInProgressEvent(WireModel):
    """The event ``response.file_search_call.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.file_search_call.in_progress"]


class ResponseFileSearchCallSearchingEvent(WireModel):
    """The event ``response.file_search_call.searching``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.file_search_call.searching"]


class ResponseFunctionCallArgumentsDeltaEvent(WireModel):
    """The event ``response.function_call_arguments.delta``."""

    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.function_call_arguments.delta"]


class ResponseFunctionCallArgumentsDoneEvent(WireModel):
    """The event ``response.function_call_arguments.done``."""

    arguments: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.function_call_arguments.done"]


class ResponseImageGenCallCompletedEvent(WireModel):
    """The event ``response.image_generation_call.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.image_generation_call.completed"]


class ResponseImageGenCallGeneratingEvent(WireModel):
    """The event ``response.image_generation_call.generating``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.image_generation_call.generating"]


class ResponseImageGenCallInProgressEvent(WireModel):
    """The event ``response.image_generation_call.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.image_generation_call.in_progress"]


class ResponseImageGenCallPartialImageEvent(WireModel):
    """The event ``response.image_generation_call.partial_image``."""

    item_id: str
    output_index: int
    partial_image_b64: str
    partial_image_index: int
    sequence_number: int
    type: Literal["response.image_generation_call.partial_image"]
    background: str | None = None
    output_format: str | None = None
    quality: str | None = None
    size: str | None = None


class ResponseMcpCallArgumentsDeltaEvent(WireModel):
    """The event ``response.mcp_call_arguments.delta``."""

    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_call_arguments.delta"]


class ResponseMcpCallArgumentsDoneEvent(WireModel):
    """The event ``response.mcp_call_arguments.done``."""

    arguments: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_call_arguments.done"]


class ResponseMcpCallCompletedEvent(WireModel):
    """The event ``response.mcp_call.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_call.completed"]


class ResponseMcpCallFailedEvent(WireModel):
    """The event ``response.mcp_call.failed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_call.failed"]


class ResponseMcpCallInProgressEvent(WireModel):
    """The event ``response.mcp_call.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_call.in_progress"]


class ResponseMcpListToolsCompletedEvent(WireModel):
    """The event ``response.mcp_list_tools.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_list_tools.completed"]


class ResponseMcpListToolsFailedEvent(WireModel):
    """The event ``response.mcp_list_tools.failed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_list_tools.failed"]


class ResponseMcpListToolsInProgressEvent(WireModel):
    """The event ``response.mcp_list_tools.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.mcp_list_tools.in_progress"]


class ResponseShellCallCommandAddedEvent(WireModel):
    """The event ``response.shell_call_command.added``."""

    command: str
    command_index: int
    output_index: int
    sequence_number: int
    type: Literal["response.shell_call_command.added"]


class ResponseShellCallCommandDeltaEvent(WireModel):
    """The event ``response.shell_call_command.delta``."""

    command_index: int
    delta: str
    output_index: int
    sequence_number: int
    type: Literal["response.shell_call_command.delta"]
    obfuscation: str | None = None


class ResponseShellCallCommandDoneEvent(WireModel):
    """The event ``response.shell_call_command.done``."""

    command: str
    command_index: int
    output_index: int
    sequence_number: int
    type: Literal["response.shell_call_command.done"]


class ShellDelta(WireModel):
    """What was printed since the last event."""

    stderr: str | None = None
    stdout: str | None = None


class ResponseShellCallOutputContentDeltaEvent(WireModel):
    """The event ``response.shell_call_output_content.delta``."""

    command_index: int
    delta: ShellDelta
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.shell_call_output_content.delta"]


class ResponseShellCallOutputContentDoneEvent(WireModel):
    """The event ``response.shell_call_output_content.done``."""

    command_index: int
    item_id: str
    output: list[ShellOutput]
    output_index: int
    sequence_number: int
    type: Literal["response.shell_call_output_content.done"]


class ResponseWebSearchCallCompletedEvent(WireModel):
    """The event ``response.web_search_call.completed``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.web_search_call.completed"]


class ResponseWebSearchCallInProgressEvent(WireModel):
    """The event ``response.web_search_call.in_progress``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.web_search_call.in_progress"]


class ResponseWebSearchCallSearchingEvent(WireModel):
    """The event ``response.web_search_call.searching``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.web_search_call.searching"]
