"""What a response takes as input: messages with their parts, and items of earlier responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Required, TypedDict

#: A name that Python keeps for itself: whether the model goes on while the call runs.
_Background = TypedDict("_Background", {"async": bool}, total=False)


class PromptCacheBreakpoint(TypedDict, total=False):
    """Where a prompt is cached up to, and for how long."""

    mode: Required[Literal["explicit"]]
    ttl: Literal["30m", "12h"]


class ResponseInputTextParam(TypedDict, total=False):
    """Text that a model reads."""

    text: Required[str]
    type: Required[Literal["input_text"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


ImageDetail = Literal["low", "high", "auto", "original"]


class ResponseInputImageParam(TypedDict, total=False):
    """An image that a model sees, by URL, ``data:`` URL or file id."""

    detail: Required[ImageDetail]
    type: Required[Literal["input_image"]]
    file_id: str | None
    image_url: str | None
    prompt_cache_breakpoint: PromptCacheBreakpoint


class ResponseInputFileParam(TypedDict, total=False):
    """A file that a model reads, as base64, by URL or by id."""

    type: Required[Literal["input_file"]]
    detail: Literal["auto", "low", "high"]
    file_data: str
    file_id: str | None
    file_url: str
    filename: str
    prompt_cache_breakpoint: PromptCacheBreakpoint


ResponseInputContentParam = ResponseInputTextParam | ResponseInputImageParam | ResponseInputFileParam


ResponseInputMessageContentListParam = list[ResponseInputContentParam]


class EasyInputMessageParam(TypedDict, total=False):
    """A message of a conversation."""

    content: Required[str | ResponseInputMessageContentListParam]
    role: Required[Literal["user", "assistant", "system", "developer"]]
    phase: Literal["commentary", "final_answer"] | None
    type: Literal["message"]


class AnnotationFileCitation(TypedDict, total=False):
    """That the text cites a file, at a place in the list of files."""

    file_id: Required[str]
    filename: Required[str]
    index: Required[int]
    type: Required[Literal["file_citation"]]


class AnnotationURLCitation(TypedDict, total=False):
    """That the text between two character positions cites a page."""

    end_index: Required[int]
    start_index: Required[int]
    title: Required[str]
    type: Required[Literal["url_citation"]]
    url: Required[str]


class AnnotationContainerFileCitation(TypedDict, total=False):
    """That the text between two character positions cites a file of a container."""

    container_id: Required[str]
    end_index: Required[int]
    file_id: Required[str]
    filename: Required[str]
    start_index: Required[int]
    type: Required[Literal["container_file_citation"]]


class AnnotationFilePath(TypedDict, total=False):
    """That a file was made, at a place in the list of files."""

    file_id: Required[str]
    index: Required[int]
    type: Required[Literal["file_path"]]


Annotation = (
    AnnotationFileCitation | AnnotationURLCitation | AnnotationContainerFileCitation | AnnotationFilePath
)


class LogprobTopLogprob(TypedDict, total=False):
    """One of the tokens that were likely at a position."""

    token: Required[str]
    bytes: Required[Iterable[int]]
    logprob: Required[float]


class Logprob(TypedDict, total=False):
    """A token of the text with its log probability, and those that were likely in its place."""

    token: Required[str]
    bytes: Required[Iterable[int]]
    logprob: Required[float]
    top_logprobs: Required[Iterable[LogprobTopLogprob]]


class ResponseOutputTextParam(TypedDict, total=False):
    """Text that a model wrote, with what it cites."""

    annotations: Required[Iterable[Annotation]]
    text: Required[str]
    type: Required[Literal["output_text"]]
    logprobs: Iterable[Logprob]


class ResponseOutputRefusalParam(TypedDict, total=False):
    """Why a model would not answer."""

    refusal: Required[str]
    type: Required[Literal["refusal"]]


Content = ResponseOutputTextParam | ResponseOutputRefusalParam


class ResponseOutputMessageParam(TypedDict, total=False):
    """A message that a model wrote."""

    id: Required[str]
    content: Required[Iterable[Content]]
    role: Required[Literal["assistant"]]
    status: Required[Literal["in_progress", "completed", "incomplete"]]
    type: Required[Literal["message"]]
    phase: Literal["commentary", "final_answer"] | None


class Summary(TypedDict, total=False):
    """A part of what a model says of its reasoning."""

    text: Required[str]
    type: Required[Literal["summary_text"]]


class ReasoningContent(TypedDict, total=False):
    """A part of the reasoning itself."""

    text: Required[str]
    type: Required[Literal["reasoning_text"]]


class ResponseReasoningItemParam(TypedDict, total=False):
    """How a model came to its answer; ``encrypted_content`` carries it on to the next call."""

    id: Required[str]
    summary: Required[Iterable[Summary]]
    type: Required[Literal["reasoning"]]
    content: Iterable[ReasoningContent]
    encrypted_content: str | None
    status: Literal["in_progress", "completed", "incomplete"]


class CallerDirect(TypedDict, total=False):
    """The model itself called."""

    type: Required[Literal["direct"]]


class CallerProgram(TypedDict, total=False):
    """A program that the model wrote called."""

    caller_id: Required[str]
    type: Required[Literal["program"]]


Caller = CallerDirect | CallerProgram


class ResponseFunctionToolCallParam(_Background, total=False):
    """The call of a function; ``arguments`` is JSON text, as the model wrote it."""

    arguments: Required[str]
    call_id: Required[str]
    name: Required[str]
    type: Required[Literal["function_call"]]
    id: str
    caller: Caller | None
    namespace: str
    status: Literal["in_progress", "completed", "incomplete"]


class ResponseCustomToolCallParam(_Background, total=False):
    """The call of a custom tool."""

    call_id: Required[str]
    input: Required[str]
    name: Required[str]
    type: Required[Literal["custom_tool_call"]]
    id: str
    caller: Caller | None
    namespace: str


Variables = str | ResponseInputTextParam | ResponseInputImageParam | ResponseInputFileParam


class ResponsePromptParam(TypedDict, total=False):
    """A prompt that the API keeps, with what stands for its variables."""

    id: Required[str]
    variables: dict[str, Variables] | None
    version: str | None


class Message(TypedDict, total=False):
    """A message of a conversation, its content in parts."""

    content: Required[Iterable[ResponseInputContentParam]]
    role: Required[Literal["user", "system", "developer"]]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["message"]


class FunctionCallOutput(TypedDict, total=False):
    """What a function answered to the call of that id."""

    call_id: Required[str]
    output: Required[str | Iterable[ResponseInputContentParam]]
    type: Required[Literal["function_call_output"]]
    id: str | None
    status: Literal["in_progress", "completed", "incomplete"] | None


class ItemReference(TypedDict, total=False):
    """An item that the API keeps."""

    id: Required[str]
    type: Literal["item_reference"] | None


#: An item of the input; the many that tools bring forth are given as mappings, as they came.
ResponseInputItemParam = (
    EasyInputMessageParam
    | Message
    | ResponseOutputMessageParam
    | ResponseFunctionToolCallParam
    | FunctionCallOutput
    | ResponseReasoningItemParam
    | ResponseCustomToolCallParam
    | ItemReference
    | dict[str, Any]
)
ResponseInputParam = list[ResponseInputItemParam]
