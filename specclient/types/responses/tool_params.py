"""The tools that a response takes, which of them it may or has to use, and how its text is to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Required, TypedDict

from specclient.types.shared_params.objects import (
    ComparisonFilter,
    CompoundFilter,
    CustomToolInputFormat,
    ResponseFormatJSONObject,
    ResponseFormatText,
)

#: A name that Python keeps for itself: whether the model goes on while the call runs.
_Background = TypedDict("_Background", {"async": bool}, total=False)


class FunctionToolParam(_Background, total=False):
    """A function that a model may call; ``parameters`` is JSON Schema."""

    name: Required[str]
    parameters: Required[dict[str, object] | None]
    strict: Required[bool | None]
    type: Required[Literal["function"]]
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    defer_loading: bool
    description: str | None
    output_schema: dict[str, object] | None


Filters = ComparisonFilter | CompoundFilter


class RankingOptionsHybridSearch(TypedDict, total=False):
    """How much meaning and words weigh in a search."""

    embedding_weight: Required[float]
    text_weight: Required[float]


class RankingOptions(TypedDict, total=False):
    """How what a search finds is ranked."""

    hybrid_search: RankingOptionsHybridSearch
    ranker: Literal["auto", "default-2024-11-15"]
    score_threshold: float


class FileSearchToolParam(TypedDict, total=False):
    """Search in vector stores."""

    type: Required[Literal["file_search"]]
    vector_store_ids: Required[Sequence[str]]
    filters: Filters | None
    max_num_results: int
    ranking_options: RankingOptions


class WebSearchFilters(TypedDict, total=False):
    """The domains a search keeps to."""

    allowed_domains: Sequence[str] | None


class UserLocation(TypedDict, total=False):
    """About where the user is; ``country`` is an ISO 3166 code, ``timezone`` one of IANA."""

    city: str | None
    country: str | None
    region: str | None
    timezone: str | None
    type: Literal["approximate"]


class WebSearchToolParam(TypedDict, total=False):
    """Search of the web."""

    type: Required[Literal["web_search", "web_search_2025_08_26"]]
    external_web_access: bool
    filters: WebSearchFilters | None
    search_context_size: Literal["low", "medium", "high"]
    user_location: UserLocation | None


class ComputerUsePreviewToolParam(TypedDict, total=False):
    """Control of a computer with a display of that size in pixels, in its preview."""

    display_height: Required[int]
    display_width: Required[int]
    environment: Required[Literal["windows", "mac", "linux", "ubuntu", "browser"]]
    type: Required[Literal["computer_use_preview"]]


class ComputerToolParam(TypedDict, total=False):
    """Control of a computer."""

    type: Required[Literal["computer"]]


class CustomToolParam(_Background, total=False):
    """A tool that takes text of some format."""

    name: Required[str]
    type: Required[Literal["custom"]]
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    defer_loading: bool
    description: str
    format: CustomToolInputFormat


class ToolChoiceAllowedParam(TypedDict, total=False):
    """Some of the tools, one of which may, or has to, be called."""

    mode: Required[Literal["auto", "required"]]
    tools: Required[Iterable[dict[str, object]]]
    type: Required[Literal["allowed_tools"]]


class ToolChoiceTypesParam(TypedDict, total=False):
    """A built-in tool that has to be called."""

    type: Required[
        Literal[
            "file_search",
            "web_search_preview",
            "computer",
            "computer_use_preview",
            "computer_use",
            "web_search_preview_2025_03_11",
            "image_generation",
            "code_interpreter",
        ]
    ]


class ToolChoiceFunctionParam(TypedDict, total=False):
    """A function that has to be called."""

    name: Required[str]
    type: Required[Literal["function"]]


class ToolChoiceMcpParam(TypedDict, total=False):
    """A server whose tools, or one of them, has to be called."""

    server_label: Required[str]
    type: Required[Literal["mcp"]]
    name: str | None


class ToolChoiceCustomParam(TypedDict, total=False):
    """A custom tool that has to be called."""

    name: Required[str]
    type: Required[Literal["custom"]]


class ResponseFormatTextJSONSchemaConfigParam(TypedDict, total=False):
    """JSON that fits a schema."""

    name: Required[str]
    schema: Required[dict[str, object]]
    type: Required[Literal["json_schema"]]
    description: str
    strict: bool | None


ResponseFormatTextConfigParam = (
    ResponseFormatText | ResponseFormatTextJSONSchemaConfigParam | ResponseFormatJSONObject
)


class ResponseTextConfigParam(TypedDict, total=False):
    """How text is written."""

    format: ResponseFormatTextConfigParam
    verbosity: Literal["low", "medium", "high"] | None


#: A tool; those that run elsewhere (``mcp``, ``code_interpreter``, ``shell``, …) are given as mappings.
ToolParam = (
    FunctionToolParam
    | FileSearchToolParam
    | WebSearchToolParam
    | ComputerToolParam
    | ComputerUsePreviewToolParam
    | CustomToolParam
    | dict[str, Any]
)
