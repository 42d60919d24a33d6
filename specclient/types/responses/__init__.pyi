"""Responses, their events and input, for type checkers; what is not listed is an open object."""

from typing import Any

from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallCodeDeltaEvent as ResponseCodeInterpreterCallCodeDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallCodeDoneEvent as ResponseCodeInterpreterCallCodeDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallCompletedEvent as ResponseCodeInterpreterCallCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallInProgressEvent as ResponseCodeInterpreterCallInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallInterpretingEvent as ResponseCodeInterpreterCallInterpretingEvent,
)
from specclient.types.responses.call_events import (
    ResponseCustomToolCallInputDeltaEvent as ResponseCustomToolCallInputDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseCustomToolCallInputDoneEvent as ResponseCustomToolCallInputDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseFileSearchCallCompletedEvent as ResponseFileSearchCallCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseFileSearchCallInProgressEvent as ResponseFileSearchCallInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseFileSearchCallSearchingEvent as ResponseFileSearchCallSearchingEvent,
)
from specclient.types.responses.call_events import (
    ResponseFunctionCallArgumentsDeltaEvent as ResponseFunctionCallArgumentsDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseFunctionCallArgumentsDoneEvent as ResponseFunctionCallArgumentsDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseImageGenCallCompletedEvent as ResponseImageGenCallCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseImageGenCallGeneratingEvent as ResponseImageGenCallGeneratingEvent,
)
from specclient.types.responses.call_events import (
    ResponseImageGenCallInProgressEvent as ResponseImageGenCallInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseImageGenCallPartialImageEvent as ResponseImageGenCallPartialImageEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpCallArgumentsDeltaEvent as ResponseMcpCallArgumentsDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpCallArgumentsDoneEvent as ResponseMcpCallArgumentsDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpCallCompletedEvent as ResponseMcpCallCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpCallFailedEvent as ResponseMcpCallFailedEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpCallInProgressEvent as ResponseMcpCallInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpListToolsCompletedEvent as ResponseMcpListToolsCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpListToolsFailedEvent as ResponseMcpListToolsFailedEvent,
)
from specclient.types.responses.call_events import (
    ResponseMcpListToolsInProgressEvent as ResponseMcpListToolsInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseShellCallCommandAddedEvent as ResponseShellCallCommandAddedEvent,
)
from specclient.types.responses.call_events import (
    ResponseShellCallCommandDeltaEvent as ResponseShellCallCommandDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseShellCallCommandDoneEvent as ResponseShellCallCommandDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseShellCallOutputContentDeltaEvent as ResponseShellCallOutputContentDeltaEvent,
)
from specclient.types.responses.call_events import (
    ResponseShellCallOutputContentDoneEvent as ResponseShellCallOutputContentDoneEvent,
)
from specclient.types.responses.call_events import (
    ResponseWebSearchCallCompletedEvent as ResponseWebSearchCallCompletedEvent,
)
from specclient.types.responses.call_events import (
    ResponseWebSearchCallInProgressEvent as ResponseWebSearchCallInProgressEvent,
)
from specclient.types.responses.call_events import (
    ResponseWebSearchCallSearchingEvent as ResponseWebSearchCallSearchingEvent,
)
from specclient.types.responses.calls import (
    McpToolCallError as McpToolCallError,
)
from specclient.types.responses.calls import (
    ResponseCustomToolCall as ResponseCustomToolCall,
)
from specclient.types.responses.calls import (
    ResponseCustomToolCallOutput as ResponseCustomToolCallOutput,
)
from specclient.types.responses.calls import (
    ResponseCustomToolCallOutputItem as ResponseCustomToolCallOutputItem,
)
from specclient.types.responses.calls import (
    ResponseFileSearchToolCall as ResponseFileSearchToolCall,
)
from specclient.types.responses.calls import (
    ResponseFunctionToolCall as ResponseFunctionToolCall,
)
from specclient.types.responses.calls import (
    ResponseFunctionToolCallOutputItem as ResponseFunctionToolCallOutputItem,
)
from specclient.types.responses.calls import (
    ResponseFunctionWebSearch as ResponseFunctionWebSearch,
)
from specclient.types.responses.calls import (
    ResponseToolSearchCall as ResponseToolSearchCall,
)
from specclient.types.responses.calls import (
    ResponseToolSearchOutputItem as ResponseToolSearchOutputItem,
)
from specclient.types.responses.computer import (
    ComputerAction as ComputerAction,
)
from specclient.types.responses.computer import (
    ComputerActionList as ComputerActionList,
)
from specclient.types.responses.computer import (
    ResponseComputerToolCall as ResponseComputerToolCall,
)
from specclient.types.responses.computer import (
    ResponseComputerToolCallOutputItem as ResponseComputerToolCallOutputItem,
)
from specclient.types.responses.computer import (
    ResponseComputerToolCallOutputScreenshot as ResponseComputerToolCallOutputScreenshot,
)
from specclient.types.responses.content import (
    ImageDetail as ImageDetail,
)
from specclient.types.responses.content import (
    ResponseError as ResponseError,
)
from specclient.types.responses.content import (
    ResponseInputFile as ResponseInputFile,
)
from specclient.types.responses.content import (
    ResponseInputImage as ResponseInputImage,
)
from specclient.types.responses.content import (
    ResponseInputText as ResponseInputText,
)
from specclient.types.responses.content import (
    ResponseOutputMessage as ResponseOutputMessage,
)
from specclient.types.responses.content import (
    ResponseOutputRefusal as ResponseOutputRefusal,
)
from specclient.types.responses.content import (
    ResponseOutputText as ResponseOutputText,
)
from specclient.types.responses.content import (
    ResponseReasoningItem as ResponseReasoningItem,
)
from specclient.types.responses.events import (
    ResponseCompactionCompactingEvent as ResponseCompactionCompactingEvent,
)
from specclient.types.responses.events import (
    ResponseCompletedEvent as ResponseCompletedEvent,
)
from specclient.types.responses.events import (
    ResponseCreatedEvent as ResponseCreatedEvent,
)
from specclient.types.responses.events import (
    ResponseErrorEvent as ResponseErrorEvent,
)
from specclient.types.responses.events import (
    ResponseFailedEvent as ResponseFailedEvent,
)
from specclient.types.responses.events import (
    ResponseIncompleteEvent as ResponseIncompleteEvent,
)
from specclient.types.responses.events import (
    ResponseInProgressEvent as ResponseInProgressEvent,
)
from specclient.types.responses.events import (
    ResponseOutputItemAddedEvent as ResponseOutputItemAddedEvent,
)
from specclient.types.responses.events import (
    ResponseOutputItemDoneEvent as ResponseOutputItemDoneEvent,
)
from specclient.types.responses.events import (
    ResponseQueuedEvent as ResponseQueuedEvent,
)
from specclient.types.responses.events import (
    ResponseStreamEvent as ResponseStreamEvent,
)
from specclient.types.responses.input_params import (
    EasyInputMessageParam as EasyInputMessageParam,
)
from specclient.types.responses.input_params import (
    ResponseCustomToolCallParam as ResponseCustomToolCallParam,
)
from specclient.types.responses.input_params import (
    ResponseFunctionToolCallParam as ResponseFunctionToolCallParam,
)
from specclient.types.responses.input_params import (
    ResponseInputContentParam as ResponseInputContentParam,
)
from specclient.types.responses.input_params import (
    ResponseInputFileParam as ResponseInputFileParam,
)
from specclient.types.responses.input_params import (
    ResponseInputImageParam as ResponseInputImageParam,
)
from specclient.types.responses.input_params import (
    ResponseInputItemParam as ResponseInputItemParam,
)
from specclient.types.responses.input_params import (
    ResponseInputMessageContentListParam as ResponseInputMessageContentListParam,
)
from specclient.types.responses.input_params import (
    ResponseInputParam as ResponseInputParam,
)
from specclient.types.responses.input_params import (
    ResponseInputTextParam as ResponseInputTextParam,
)
from specclient.types.responses.input_params import (
    ResponseOutputMessageParam as ResponseOutputMessageParam,
)
from specclient.types.responses.input_params import (
    ResponseOutputRefusalParam as ResponseOutputRefusalParam,
)
from specclient.types.responses.input_params import (
    ResponseOutputTextParam as ResponseOutputTextParam,
)
from specclient.types.responses.input_params import (
    ResponsePromptParam as ResponsePromptParam,
)
from specclient.types.responses.input_params import (
    ResponseReasoningItemParam as ResponseReasoningItemParam,
)
from specclient.types.responses.items import (
    ResponseCompactionItem as ResponseCompactionItem,
)
from specclient.types.responses.items import (
    ResponseOutputItem as ResponseOutputItem,
)
from specclient.types.responses.parsed_response import (
    ParsedContent as ParsedContent,
)
from specclient.types.responses.parsed_response import (
    ParsedResponse as ParsedResponse,
)
from specclient.types.responses.parsed_response import (
    ParsedResponseFunctionToolCall as ParsedResponseFunctionToolCall,
)
from specclient.types.responses.parsed_response import (
    ParsedResponseOutputItem as ParsedResponseOutputItem,
)
from specclient.types.responses.parsed_response import (
    ParsedResponseOutputMessage as ParsedResponseOutputMessage,
)
from specclient.types.responses.parsed_response import (
    ParsedResponseOutputText as ParsedResponseOutputText,
)
from specclient.types.responses.response import (
    Response as Response,
)
from specclient.types.responses.response import (
    ResponseFormatTextConfig as ResponseFormatTextConfig,
)
from specclient.types.responses.response import (
    ResponseFormatTextJSONSchemaConfig as ResponseFormatTextJSONSchemaConfig,
)
from specclient.types.responses.response import (
    ResponseIncludable as ResponseIncludable,
)
from specclient.types.responses.response import (
    ResponsePrompt as ResponsePrompt,
)
from specclient.types.responses.response import (
    ResponseStatus as ResponseStatus,
)
from specclient.types.responses.response import (
    ResponseTextConfig as ResponseTextConfig,
)
from specclient.types.responses.response import (
    ResponseUsage as ResponseUsage,
)
from specclient.types.responses.response import (
    ServiceTier as ServiceTier,
)
from specclient.types.responses.shell import (
    ResponseApplyPatchToolCall as ResponseApplyPatchToolCall,
)
from specclient.types.responses.shell import (
    ResponseApplyPatchToolCallOutput as ResponseApplyPatchToolCallOutput,
)
from specclient.types.responses.shell import (
    ResponseCodeInterpreterToolCall as ResponseCodeInterpreterToolCall,
)
from specclient.types.responses.shell import (
    ResponseContainerReference as ResponseContainerReference,
)
from specclient.types.responses.shell import (
    ResponseFunctionShellToolCall as ResponseFunctionShellToolCall,
)
from specclient.types.responses.shell import (
    ResponseFunctionShellToolCallOutput as ResponseFunctionShellToolCallOutput,
)
from specclient.types.responses.shell import (
    ResponseLocalEnvironment as ResponseLocalEnvironment,
)
from specclient.types.responses.text_events import (
    ResponseAudioDeltaEvent as ResponseAudioDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseAudioDoneEvent as ResponseAudioDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseAudioTranscriptDeltaEvent as ResponseAudioTranscriptDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseAudioTranscriptDoneEvent as ResponseAudioTranscriptDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseContentPartAddedEvent as ResponseContentPartAddedEvent,
)
from specclient.types.responses.text_events import (
    ResponseContentPartDoneEvent as ResponseContentPartDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseOutputTextAnnotationAddedEvent as ResponseOutputTextAnnotationAddedEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningSummaryPartAddedEvent as ResponseReasoningSummaryPartAddedEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningSummaryPartDoneEvent as ResponseReasoningSummaryPartDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningSummaryTextDeltaEvent as ResponseReasoningSummaryTextDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningSummaryTextDoneEvent as ResponseReasoningSummaryTextDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningTextDeltaEvent as ResponseReasoningTextDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseReasoningTextDoneEvent as ResponseReasoningTextDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseRefusalDeltaEvent as ResponseRefusalDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseRefusalDoneEvent as ResponseRefusalDoneEvent,
)
from specclient.types.responses.text_events import (
    ResponseTextDeltaEvent as ResponseTextDeltaEvent,
)
from specclient.types.responses.text_events import (
    ResponseTextDoneEvent as ResponseTextDoneEvent,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceAllowed as ToolChoiceAllowed,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceApplyPatch as ToolChoiceApplyPatch,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceCustom as ToolChoiceCustom,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceFunction as ToolChoiceFunction,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceMcp as ToolChoiceMcp,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceOptions as ToolChoiceOptions,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceShell as ToolChoiceShell,
)
from specclient.types.responses.tool_choices import (
    ToolChoiceTypes as ToolChoiceTypes,
)
from specclient.types.responses.tool_params import (
    ComputerToolParam as ComputerToolParam,
)
from specclient.types.responses.tool_params import (
    ComputerUsePreviewToolParam as ComputerUsePreviewToolParam,
)
from specclient.types.responses.tool_params import (
    CustomToolParam as CustomToolParam,
)
from specclient.types.responses.tool_params import (
    FileSearchToolParam as FileSearchToolParam,
)
from specclient.types.responses.tool_params import (
    FunctionToolParam as FunctionToolParam,
)
from specclient.types.responses.tool_params import (
    ResponseFormatTextConfigParam as ResponseFormatTextConfigParam,
)
from specclient.types.responses.tool_params import (
    ResponseFormatTextJSONSchemaConfigParam as ResponseFormatTextJSONSchemaConfigParam,
)
from specclient.types.responses.tool_params import (
    ResponseTextConfigParam as ResponseTextConfigParam,
)
from specclient.types.responses.tool_params import (
    ToolChoiceAllowedParam as ToolChoiceAllowedParam,
)
from specclient.types.responses.tool_params import (
    ToolChoiceCustomParam as ToolChoiceCustomParam,
)
from specclient.types.responses.tool_params import (
    ToolChoiceFunctionParam as ToolChoiceFunctionParam,
)
from specclient.types.responses.tool_params import (
    ToolChoiceMcpParam as ToolChoiceMcpParam,
)
from specclient.types.responses.tool_params import (
    ToolChoiceTypesParam as ToolChoiceTypesParam,
)
from specclient.types.responses.tool_params import (
    ToolParam as ToolParam,
)
from specclient.types.responses.tool_params import (
    WebSearchToolParam as WebSearchToolParam,
)
from specclient.types.responses.tools import (
    ApplyPatchTool as ApplyPatchTool,
)
from specclient.types.responses.tools import (
    ComputerTool as ComputerTool,
)
from specclient.types.responses.tools import (
    ComputerUsePreviewTool as ComputerUsePreviewTool,
)
from specclient.types.responses.tools import (
    ContainerAuto as ContainerAuto,
)
from specclient.types.responses.tools import (
    ContainerNetworkPolicyAllowlist as ContainerNetworkPolicyAllowlist,
)
from specclient.types.responses.tools import (
    ContainerNetworkPolicyDisabled as ContainerNetworkPolicyDisabled,
)
from specclient.types.responses.tools import (
    ContainerNetworkPolicyDomainSecret as ContainerNetworkPolicyDomainSecret,
)
from specclient.types.responses.tools import (
    ContainerReference as ContainerReference,
)
from specclient.types.responses.tools import (
    CustomTool as CustomTool,
)
from specclient.types.responses.tools import (
    FileSearchTool as FileSearchTool,
)
from specclient.types.responses.tools import (
    FunctionShellTool as FunctionShellTool,
)
from specclient.types.responses.tools import (
    FunctionTool as FunctionTool,
)
from specclient.types.responses.tools import (
    InlineSkill as InlineSkill,
)
from specclient.types.responses.tools import (
    InlineSkillSource as InlineSkillSource,
)
from specclient.types.responses.tools import (
    LocalEnvironment as LocalEnvironment,
)
from specclient.types.responses.tools import (
    LocalSkill as LocalSkill,
)
from specclient.types.responses.tools import (
    NamespaceTool as NamespaceTool,
)
from specclient.types.responses.tools import (
    SkillReference as SkillReference,
)
from specclient.types.responses.tools import (
    Tool as Tool,
)
from specclient.types.responses.tools import (
    ToolSearchTool as ToolSearchTool,
)
from specclient.types.responses.tools import (
    WebSearchPreviewTool as WebSearchPreviewTool,
)
from specclient.types.responses.tools import (
    WebSearchTool as WebSearchTool,
)

def __getattr__(name: str) -> Any: ...
