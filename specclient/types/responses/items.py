"""The items that the output of a response is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from specclient.types.base import LenientJsonText, WireModel
from specclient.types.responses.calls import (
    McpToolCallError,
    ResponseCustomToolCall,
    ResponseCustomToolCallOutputItem,
    ResponseFileSearchToolCall,
    ResponseFunctionToolCall,
    ResponseFunctionToolCallOutputItem,
    ResponseFunctionWebSearch,
    ResponseToolSearchCall,
    ResponseToolSearchOutputItem,
)
from specclient.types.responses.computer import ResponseComputerToolCall, ResponseComputerToolCallOutputItem
from specclient.types.responses.content import ResponseOutputMessage, ResponseReasoningItem
from specclient.types.responses.shell import (
    ResponseApplyPatchToolCall,
    ResponseApplyPatchToolCallOutput,
    ResponseCodeInterpreterToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionShellToolCallOutput,
)
from specclient.types.responses.tools import Tool
from specclient.types.shared.objects import Metadata
from specclient.types.tagged_union import TaggedUnion


class ResponseCompactionItem(WireModel):
    """What a long conversation was compacted into."""

    id: str
    encrypted_content: str
    type: Literal["compaction"]
    created_by: str | None = None


class Program(WireModel):
    """A program that the model wrote to call tools."""

    id: str
    call_id: str
    code: str
    fingerprint: str
    type: Literal["program"]


class ProgramOutput(WireModel):
    """What such a program gave."""

    id: str
    call_id: str
    result: str
    status: Literal["completed", "incomplete"]
    type: Literal["program_output"]


class AdditionalTools(WireModel):
    """Tools that came to those of the request."""

    id: str
    role: Literal["unknown", "user", "assistant", "system", "critic", "discriminator", "developer", "tool"]
    tools: list[Tool]
    type: Literal["additional_tools"]


class ImageGenerationCallErrorModerationDetails(WireModel):
    """What moderation found in an image."""

    categories: list[str]
    moderation_stage: Literal["input", "output", "unknown"]


class ImageGenerationCallError(WireModel):
    """Why there is no image."""

    code: str | None = None
    message: str
    param: str | None = None
    type: str
    moderation_details: ImageGenerationCallErrorModerationDetails | None = None


class ImageGenerationCallSvgUsage(WireModel):
    """The tokens that a vector image took."""

    input_tokens: int
    model: str
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


class ImageGenerationCall(WireModel):
    """An image that was made; ``result`` is base64."""

    id: str
    result: str | None = None
    status: Literal["in_progress", "completed", "generating", "failed"]
    type: Literal["image_generation_call"]
    action: Literal["generate", "edit", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    error: ImageGenerationCallError | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | None = None
    revised_prompt: str | None = None
    size: str | Literal["1024x1024", "1024x1536", "1536x1024"] | None = None
    svg_usage: ImageGenerationCallSvgUsage | None = None


class LocalShellCallAction(WireModel):
    """A command for a shell of the caller; ``timeout_ms`` in milliseconds."""

    command: list[str]
    env: Metadata
    type: Literal["exec"]
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class LocalShellCall(WireModel):
    """The call of a shell of the caller."""

    id: str
    action: LocalShellCallAction
    call_id: str
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["local_shell_call"]


class LocalShellCallOutput(WireModel):
    """What a shell of the caller printed."""

    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class McpCall(WireModel):
    """The call of a server's tool; ``arguments`` is JSON text."""

    id: str
    arguments: LenientJsonText
    name: str
    server_label: str
    type: Literal["mcp_call"]
    approval_request_id: str | None = None
    error: McpToolCallError | None = None
    output: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | None = None


class McpListToolsTool(WireModel):
    """A tool of a server."""

    input_schema: Any
    name: str
    annotations: Any | None = None
    description: str | None = None


class McpListTools(WireModel):
    """The tools of a server."""

    id: str
    server_label: str
    tools: list[McpListToolsTool]
    type: Literal["mcp_list_tools"]
    error: str | None = None


class McpApprovalRequest(WireModel):
    """The call of a server's tool, which waits for approval."""

    id: str
    arguments: str
    name: str
    server_label: str
    type: Literal["mcp_approval_request"]


class McpApprovalResponse(WireModel):
    """Whether a call may be made."""

    id: str
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    reason: str | None = None


#: What the output may hold beside messages and calls of functions.
OtherOutputItem = (
    ResponseFileSearchToolCall
    | ResponseFunctionToolCallOutputItem
    | ResponseFunctionWebSearch
    | ResponseComputerToolCall
    | ResponseComputerToolCallOutputItem
    | ResponseReasoningItem
    | Program
    | ProgramOutput
    | ResponseToolSearchCall
    | ResponseToolSearchOutputItem
    | AdditionalTools
    | ResponseCompactionItem
    | ImageGenerationCall
    | ResponseCodeInterpreterToolCall
    | LocalShellCall
    | LocalShellCallOutput
    | ResponseFunctionShellToolCall
    | ResponseFunctionShellToolCallOutput
    | ResponseApplyPatchToolCall
    | ResponseApplyPatchToolCallOutput
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
    | ResponseCustomToolCall
    | ResponseCustomToolCallOutputItem
)

ResponseOutputItem = Annotated[
    ResponseOutputMessage | ResponseFunctionToolCall | OtherOutputItem, TaggedUnion("type")
]
