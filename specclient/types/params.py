"""The parameters of each call, as the OpenAI API names them; a caller gives any subset by keyword."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

from specclient.types.route import Policy
from specclient.types.strategy import Strategy

T = TypeVar("T")


class NotGiven:
    """The value of a parameter that was not given, where ``None`` would mean ``null``."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


class Omit:
    """The value of what is to be left out: of a parameter, or of a header that would be sent otherwise."""

    def __bool__(self) -> Literal[False]:
        return False


NOT_GIVEN: Final = NotGiven()
not_given: Final = NOT_GIVEN
omit: Final = Omit()

Omittable: TypeAlias = T | NotGiven | Omit


class RequestOptions(TypedDict, total=False):
    """What a call by its path takes (``client.get``, ``client.post``)."""

    headers: Mapping[str, str | Omit]
    max_retries: int
    timeout: Any
    params: Mapping[str, Any]
    extra_json: Mapping[str, Any]
    idempotency_key: str
    follow_redirects: bool


class CallOptions(TypedDict, total=False):
    """What any call takes beside the API's own parameters.

    ``policy`` (a :class:`Policy`, or the name of one in the configuration) routes the call; ``tags`` label
    it in the ledger, and ``session`` names what it is a part of; ``strategy`` (a :class:`Strategy`, or its
    kind) plays speculation from this side; ``drop_params`` leaves out what the endpoint cannot express;
    ``deadline_s`` is how many seconds all of its tries and the waits between them may take. These are ours;
    the rest is the OpenAI client's.
    """

    extra_headers: Mapping[str, str | Omit | None] | None
    extra_query: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    timeout: Any
    policy: Policy | str | None
    tags: Mapping[str, str] | None
    session: str | None
    strategy: Strategy | str | None
    drop_params: bool | None
    deadline_s: float | None


class CompletionCreateParams(CallOptions, total=False):
    """``completions.create`` (https://platform.openai.com/docs/api-reference/completions/create)."""

    best_of: Omittable[int | None]
    echo: Omittable[bool | None]
    frequency_penalty: Omittable[float | None]
    logit_bias: Omittable[Mapping[str, int] | None]
    logprobs: Omittable[int | None]
    max_tokens: Omittable[int | None]
    n: Omittable[int | None]
    presence_penalty: Omittable[float | None]
    seed: Omittable[int | None]
    stop: Omittable[str | Sequence[str] | None]
    stream_options: Omittable[Mapping[str, Any] | None]
    suffix: Omittable[str | None]
    temperature: Omittable[float | None]
    top_p: Omittable[float | None]
    user: Omittable[str]


class ChatCreateParams(CallOptions, total=False):
    """``chat.completions.create`` (https://platform.openai.com/docs/api-reference/chat/create)."""

    audio: Omittable[Mapping[str, Any] | None]
    frequency_penalty: Omittable[float | None]
    function_call: Any
    functions: Omittable[Iterable[Mapping[str, Any]]]
    logit_bias: Omittable[Mapping[str, int] | None]
    logprobs: Omittable[bool | None]
    max_completion_tokens: Omittable[int | None]
    max_tokens: Omittable[int | None]
    metadata: Omittable[Mapping[str, str] | None]
    modalities: Omittable[Sequence[str] | None]
    moderation: Any
    n: Omittable[int | None]
    parallel_tool_calls: Omittable[bool]
    prediction: Omittable[Mapping[str, Any] | None]
    presence_penalty: Omittable[float | None]
    prompt_cache_key: Omittable[str | None]
    prompt_cache_options: Any
    prompt_cache_retention: Omittable[str | None]
    reasoning_effort: Omittable[str | None]
    response_format: Omittable[Mapping[str, Any]]
    safety_identifier: Omittable[str | None]
    seed: Omittable[int | None]
    service_tier: Omittable[str | None]
    stop: Omittable[str | Sequence[str] | None]
    store: Omittable[bool | None]
    stream_options: Omittable[Mapping[str, Any] | None]
    temperature: Omittable[float | None]
    tool_choice: Any
    tools: Omittable[Iterable[Mapping[str, Any]]]
    top_logprobs: Omittable[int | None]
    top_p: Omittable[float | None]
    user: Omittable[str]
    verbosity: Omittable[str | None]
    web_search_options: Omittable[Mapping[str, Any]]


class EmbeddingCreateParams(CallOptions, total=False):
    """``embeddings.create`` (https://platform.openai.com/docs/api-reference/embeddings/create)."""

    dimensions: Omittable[int]
    encoding_format: Omittable[Literal["float", "base64"]]
    user: Omittable[str]


class ModerationCreateParams(CallOptions, total=False):
    """``moderations.create`` (https://platform.openai.com/docs/api-reference/moderations/create)."""

    model: Omittable[str]


class ResponseCreateParams(CallOptions, total=False):
    """``responses.create`` (https://platform.openai.com/docs/api-reference/responses/create)."""

    access_programs: Omittable[Mapping[str, Any]]
    background: Omittable[bool | None]
    context_management: Omittable[Iterable[Mapping[str, Any]] | None]
    conversation: Omittable[str | Mapping[str, Any] | None]
    image: Omittable[Mapping[str, Any]]
    include: Omittable[Sequence[str] | None]
    input: Omittable[str | Iterable[Any]]
    instructions: Omittable[str | None]
    max_output_tokens: Omittable[int | None]
    max_tool_calls: Omittable[int | None]
    metadata: Omittable[Mapping[str, str] | None]
    model: Omittable[str]
    moderation: Omittable[Mapping[str, Any] | None]
    parallel_tool_calls: Omittable[bool | None]
    previous_response_id: Omittable[str | None]
    prompt: Omittable[Mapping[str, Any] | None]
    prompt_cache_key: Omittable[str | None]
    prompt_cache_options: Omittable[Mapping[str, Any]]
    prompt_cache_retention: Omittable[str | None]
    reasoning: Omittable[Mapping[str, Any] | None]
    safety_identifier: Omittable[str | None]
    service_tier: Omittable[str | None]
    store: Omittable[bool | None]
    stream: Omittable[bool | None]
    stream_options: Omittable[Mapping[str, Any] | None]
    temperature: Omittable[float | None]
    text: Omittable[Mapping[str, Any]]
    tool_choice: Any
    tools: Omittable[Iterable[Any]]
    top_logprobs: Omittable[int | None]
    top_p: Omittable[float | None]
    truncation: Omittable[Literal["auto", "disabled"] | None]
    user: Omittable[str]
