"""Calls of functions, searches and other tools, and what came of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specclient.types.base import LenientJsonText, WireModel
from specclient.types.responses.content import ResponseInputFile, ResponseInputImage, ResponseInputText
from specclient.types.responses.tools import Tool
from specclient.types.tagged_union import TaggedUnion


class CallerDirect(WireModel):
    """The model itself called."""

    type: Literal["direct"]


class CallerProgram(WireModel):
    """A program that the model wrote called."""

    caller_id: str
    type: Literal["program"]


Caller = Annotated[CallerDirect | CallerProgram | None, TaggedUnion("type")]


class ResponseFunctionToolCall(WireModel):
    """The call of a function; ``arguments`` is JSON text, as the model wrote it."""

    arguments: LenientJsonText
    call_id: str
    name: str
    type: Literal["function_call"]
    id: str | None = None
    async_: bool | None = Field(alias="async", default=None)
    caller: Caller | None = None
    namespace: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


OutputOutputContentList = Annotated[
    ResponseInputText | ResponseInputImage | ResponseInputFile, TaggedUnion("type")
]


class ResponseFunctionToolCallOutputItem(WireModel):
    """What a function answered."""

    id: str
    output: str | list[OutputOutputContentList]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["function_call_output"]
    call_id: str | None = None
    caller: Caller | None = None
    created_by: str | None = None
    name: str | None = None
    namespace: str | None = None


class ResponseCustomToolCall(WireModel):
    """The call of a custom tool."""

    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    id: str | None = None
    async_: bool | None = Field(alias="async", default=None)
    caller: Caller | None = None
    namespace: str | None = None


class ResponseCustomToolCallOutput(WireModel):
    """What a custom tool answered."""

    call_id: str
    output: str | list[OutputOutputContentList]
    type: Literal["custom_tool_call_output"]
    id: str | None = None
    caller: Caller | None = None


class ResponseCustomToolCallOutputItem(WireModel):
    """What a custom tool answered, as the API keeps it."""

    call_id: str
    output: str | list[OutputOutputContentList]
    type: Literal["custom_tool_call_output"]
    id: str
    caller: Caller | None = None
    status: Literal["in_progress", "completed", "incomplete"]
    created_by: str | None = None


class Result(WireModel):
    """A file that a search found; ``score`` is between 0 and 1."""

    attributes: dict[str, str | float | bool] | None = None
    file_id: str | None = None
    filename: str | None = None
    score: float | None = None
    text: str | None = None


class ResponseFileSearchToolCall(WireModel):
    """A search in vector stores."""

    id: str
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    type: Literal["file_search_call"]
    results: list[Result] | None = None


class ActionSearchSource(WireModel):
    """A page that a search used."""

    type: Literal["url"]
    url: str


class ActionSearch(WireModel):
    """A search."""

    type: Literal["search"]
    queries: list[str] | None = None
    query: str | None = None
    sources: list[ActionSearchSource] | None = None


class ActionOpenPage(WireModel):
    """The opening of a page."""

    type: Literal["open_page"]
    url: str | None = None


class ActionFind(WireModel):
    """The search for words in a page."""

    pattern: str
    type: Literal["find_in_page"]
    url: str


Action = Annotated[ActionSearch | ActionOpenPage | ActionFind, TaggedUnion("type")]


class ResponseFunctionWebSearch(WireModel):
    """A search of the web."""

    id: str
    action: Action
    status: Literal["in_progress", "searching", "completed", "failed", "incomplete"]
    type: Literal["web_search_call"]


class ResponseToolSearchCall(WireModel):
    """A search for tools."""

    id: str
    arguments: Any
    call_id: str | None = None
    execution: Literal["server", "client"]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["tool_search_call"]
    created_by: str | None = None


class ResponseToolSearchOutputItem(WireModel):
    """The tools that a search found."""

    id: str
    call_id: str | None = None
    execution: Literal["server", "client"]
    status: Literal["in_progress", "completed", "incomplete"]
    tools: list[Tool]
    type: Literal["tool_search_output"]
    created_by: str | None = None


class McpProtocolError(WireModel):
    """That a server broke the protocol."""

    code: int
    message: str
    type: Literal["mcp_protocol_error"]


class McpToolExecutionError(WireModel):
    """That a tool of a server failed."""

    content: Any
    type: Literal["mcp_tool_execution_error"]


class HTTPError(WireModel):
    """That a server answered with an error of HTTP."""

    code: int
    message: str
    type: Literal["http_error"]


McpToolCallError = Annotated[McpProtocolError | McpToolExecutionError | HTTPError, TaggedUnion("type")]
