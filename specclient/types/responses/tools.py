"""The tools of a response, as the API repeats them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specclient.types.base import WireModel
from specclient.types.shared.objects import ComparisonFilter, CompoundFilter, CustomToolInputFormat, Metadata
from specclient.types.tagged_union import TaggedUnion


class FunctionTool(WireModel):
    """A function that a model may call; ``parameters`` is JSON Schema."""

    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    type: Literal["function"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    async_: bool | None = Field(alias="async", default=None)
    defer_loading: bool | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None


Filters = Annotated[ComparisonFilter | CompoundFilter | None, TaggedUnion("type")]


class RankingOptionsHybridSearch(WireModel):
    """How much meaning and words weigh in a search."""

    embedding_weight: float
    text_weight: float


class RankingOptions(WireModel):
    """How what a search finds is ranked."""

    hybrid_search: RankingOptionsHybridSearch | None = None
    ranker: Literal["auto", "default-2024-11-15"] | None = None
    score_threshold: float | None = None


class FileSearchTool(WireModel):
    """Search in vector stores."""

    type: Literal["file_search"]
    vector_store_ids: list[str]
    filters: Filters = None
    max_num_results: int | None = None
    ranking_options: RankingOptions | None = None


class ComputerTool(WireModel):
    """Control of a computer."""

    type: Literal["computer"]


class ComputerUsePreviewTool(WireModel):
    """Control of a computer with a display of that size in pixels, in its preview."""

    display_height: int
    display_width: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]
    type: Literal["computer_use_preview"]


class WebSearchFilters(WireModel):
    """The domains a search keeps to."""

    allowed_domains: list[str] | None = None


class UserLocation(WireModel):
    """About where the user is; ``country`` is an ISO 3166 code, ``timezone`` one of IANA."""

    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None
    type: Literal["approximate"] | None = None


class WebSearchTool(WireModel):
    """Search of the web."""

    type: Literal["web_search", "web_search_2025_08_26"]
    external_web_access: bool | None = None
    filters: WebSearchFilters | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None


class PreviewUserLocation(WireModel):
    """About where the user is, for the preview of web search."""

    type: Literal["approximate"]
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearchPreviewTool(WireModel):
    """Search of the web, in its preview."""

    type: Literal["web_search_preview", "web_search_preview_2025_03_11"]
    search_content_types: list[Literal["text", "image"]] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: PreviewUserLocation | None = None


class ContainerNetworkPolicyDomainSecret(WireModel):
    """A secret that is sent to one domain."""

    domain: str
    name: str
    value: str


class ContainerNetworkPolicyDisabled(WireModel):
    """No network."""

    type: Literal["disabled"]


class ContainerNetworkPolicyAllowlist(WireModel):
    """A network of some domains only."""

    allowed_domains: list[str]
    type: Literal["allowlist"]
    domain_secrets: list[ContainerNetworkPolicyDomainSecret] | None = None


class SkillReference(WireModel):
    """A skill by its id."""

    skill_id: str
    type: Literal["skill_reference"]
    version: str | None = None


class InlineSkillSource(WireModel):
    """A zip archive of a skill as base64."""

    data: str
    media_type: Literal["application/zip"]
    type: Literal["base64"]


class InlineSkill(WireModel):
    """A skill, sent along."""

    description: str
    name: str
    source: InlineSkillSource
    type: Literal["inline"]


NetworkPolicy = Annotated[
    ContainerNetworkPolicyDisabled | ContainerNetworkPolicyAllowlist, TaggedUnion("type")
]


Skill = Annotated[SkillReference | InlineSkill, TaggedUnion("type")]


class ContainerAuto(WireModel):
    """A container that is made for the call."""

    type: Literal["container_auto"]
    file_ids: list[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None
    skills: list[Skill] | None = None


class LocalSkill(WireModel):
    """A skill on the machine of the caller."""

    description: str
    name: str
    path: str


class LocalEnvironment(WireModel):
    """The machine of the caller."""

    type: Literal["local"]
    skills: list[LocalSkill] | None = None


class ContainerReference(WireModel):
    """A container by its id."""

    container_id: str
    type: Literal["container_reference"]


Environment = Annotated[ContainerAuto | LocalEnvironment | ContainerReference | None, TaggedUnion("type")]


class FunctionShellTool(WireModel):
    """A shell, of the caller or in a container."""

    type: Literal["shell"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    environment: Environment | None = None


class CustomTool(WireModel):
    """A tool that takes text of some format."""

    name: str
    type: Literal["custom"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    async_: bool | None = Field(alias="async", default=None)
    defer_loading: bool | None = None
    description: str | None = None
    format: CustomToolInputFormat | None = None


class ToolFunction(WireModel):
    """A function of a namespace."""

    name: str
    type: Literal["function"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    async_: bool | None = Field(alias="async", default=None)
    defer_loading: bool | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    parameters: Any | None = None
    strict: bool | None = None


NamespacedTool = Annotated[ToolFunction | CustomTool, TaggedUnion("type")]


class NamespaceTool(WireModel):
    """Tools beneath one name."""

    description: str
    name: str
    tools: list[NamespacedTool]
    type: Literal["namespace"]


class ToolSearchTool(WireModel):
    """Search for the tools that are needed."""

    type: Literal["tool_search"]
    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: Any | None = None


class ApplyPatchTool(WireModel):
    """Changes of files, as diffs."""

    type: Literal["apply_patch"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class McpAllowedToolsMcpToolFilter(WireModel):
    """Which tools of a server may be used."""

    read_only: bool | None = None
    tool_names: list[str] | None = None


McpAllowedTools = Annotated[list[str] | McpAllowedToolsMcpToolFilter | None, TaggedUnion("type")]


class McpRequireApprovalMcpToolApprovalFilterAlways(WireModel):
    """Tools that always need approval."""

    read_only: bool | None = None
    tool_names: list[str] | None = None


class McpRequireApprovalMcpToolApprovalFilterNever(WireModel):
    """Tools that never need approval."""

    read_only: bool | None = None
    tool_names: list[str] | None = None


class McpRequireApprovalMcpToolApprovalFilter(WireModel):
    """Which tools of a server need approval."""

    always: McpRequireApprovalMcpToolApprovalFilterAlways | None = None
    never: McpRequireApprovalMcpToolApprovalFilterNever | None = None


McpRequireApproval = McpRequireApprovalMcpToolApprovalFilter | Literal["always", "never"] | None


class Mcp(WireModel):
    """The tools of a server that speaks the Model Context Protocol."""

    server_label: str
    type: Literal["mcp"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    allowed_tools: McpAllowedTools = None
    authorization: str | None = None
    connector_id: (
        Literal[
            "connector_dropbox",
            "connector_gmail",
            "connector_googlecalendar",
            "connector_googledrive",
            "connector_microsoftteams",
            "connector_outlookcalendar",
            "connector_outlookemail",
            "connector_sharepoint",
        ]
        | None
    ) = None
    defer_loading: bool | None = None
    headers: Metadata | None = None
    require_approval: McpRequireApproval = None
    server_description: str | None = None
    server_url: str | None = None
    tunnel_id: str | None = None


CodeInterpreterContainerCodeInterpreterToolAutoNetworkPolicy = Annotated[
    ContainerNetworkPolicyDisabled | ContainerNetworkPolicyAllowlist, TaggedUnion("type")
]


class CodeInterpreterContainerCodeInterpreterToolAuto(WireModel):
    """A container that is made when it is needed."""

    type: Literal["auto"]
    file_ids: list[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: CodeInterpreterContainerCodeInterpreterToolAutoNetworkPolicy | None = None


CodeInterpreterContainer = str | CodeInterpreterContainerCodeInterpreterToolAuto


class CodeInterpreter(WireModel):
    """Python, run in a container."""

    container: CodeInterpreterContainer
    type: Literal["code_interpreter"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class ProgrammaticToolCalling(WireModel):
    """Tools called by a program that the model writes."""

    type: Literal["programmatic_tool_calling"]


class ImageGenerationInputImageMask(WireModel):
    """What part of an image is to be painted anew."""

    file_id: str | None = None
    image_url: str | None = None


class ImageGenerationSvgReasoning(WireModel):
    """How long a model thinks about a vector image."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class ImageGenerationSvg(WireModel):
    """How vector images are made."""

    model: str | None = None
    reasoning: ImageGenerationSvgReasoning | None = None


class ImageGeneration(WireModel):
    """Images, made by a model for them."""

    type: Literal["image_generation"]
    action: Literal["generate", "edit", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    complexity: Literal["low", "medium", "high"] | None = None
    frame_count: int | None = None
    frame_duration_ms: int | None = None
    input_fidelity: Literal["high", "low"] | None = None
    input_image_mask: ImageGenerationInputImageMask | None = None
    model: (
        str
        | Literal[
            "gpt-image-1",
            "gpt-image-1-mini",
            "gpt-image-2",
            "gpt-image-2-2026-04-21",
            "gpt-image-2.5-sunburst",
            "gpt-image-2.5-sunburst-2026-09-08",
            "gpt-image-2.5-flare",
            "gpt-image-2.5-flare-2026-09-08",
            "gpt-image-2.6-sunburst",
            "gpt-image-2.6-flare",
            "gpt-image-1.5",
            "chatgpt-image-latest",
        ]
        | None
    ) = None
    moderation: Literal["auto", "low"] | None = None
    output_compression: int | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    partial_images: int | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | None = None
    size: str | Literal["1024x1024", "1024x1536", "1536x1024", "auto"] | None = None
    svg: ImageGenerationSvg | None = None


class LocalShell(WireModel):
    """A shell of the caller."""

    type: Literal["local_shell"]


Tool = Annotated[
    FunctionTool
    | FileSearchTool
    | ComputerTool
    | ComputerUsePreviewTool
    | WebSearchTool
    | Mcp
    | CodeInterpreter
    | ProgrammaticToolCalling
    | ImageGeneration
    | LocalShell
    | FunctionShellTool
    | CustomTool
    | NamespaceTool
    | ToolSearchTool
    | WebSearchPreviewTool
    | ApplyPatchTool,
    TaggedUnion("type"),
]
