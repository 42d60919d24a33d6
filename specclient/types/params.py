"""The parameters of each call, as the OpenAI API names them; a caller gives any subset by keyword."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from specclient.types.route import Policy


class NotGiven:
    """The value of a parameter that was not given, where ``None`` would mean ``null``."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = NotGiven()
omit: Final = NOT_GIVEN


class CallOptions(TypedDict, total=False):
    """What any call takes beside the API's own parameters.

    ``policy`` (a :class:`Policy`, or the name of one in the configuration) routes the call;
    ``tags`` label it in the ledger. Both are ours; the rest is the OpenAI client's.
    """

    extra_headers: Mapping[str, str | None] | None
    extra_query: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    timeout: Any
    policy: Policy | str | None
    tags: Mapping[str, str] | None


class CompletionCreateParams(CallOptions, total=False):
    """``completions.create`` (https://platform.openai.com/docs/api-reference/completions/create)."""

    best_of: int | None
    echo: bool | None
    frequency_penalty: float | None
    logit_bias: Mapping[str, int] | None
    logprobs: int | None
    max_tokens: int | None
    n: int | None
    presence_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    stream_options: Mapping[str, Any] | None
    suffix: str | None
    temperature: float | None
    top_p: float | None
    user: str


class ChatCreateParams(CallOptions, total=False):
    """``chat.completions.create`` (https://platform.openai.com/docs/api-reference/chat/create)."""

    audio: Mapping[str, Any] | None
    frequency_penalty: float | None
    function_call: Any
    functions: Iterable[Mapping[str, Any]]
    logit_bias: Mapping[str, int] | None
    logprobs: bool | None
    max_completion_tokens: int | None
    max_tokens: int | None
    metadata: Mapping[str, str] | None
    modalities: Sequence[str] | None
    moderation: Any
    n: int | None
    parallel_tool_calls: bool
    prediction: Mapping[str, Any] | None
    presence_penalty: float | None
    prompt_cache_key: str
    prompt_cache_options: Any
    prompt_cache_retention: str | None
    reasoning_effort: str | None
    response_format: Mapping[str, Any]
    safety_identifier: str
    seed: int | None
    service_tier: str | None
    stop: str | Sequence[str] | None
    store: bool | None
    stream_options: Mapping[str, Any] | None
    temperature: float | None
    tool_choice: Any
    tools: Iterable[Mapping[str, Any]]
    top_logprobs: int | None
    top_p: float | None
    user: str
    verbosity: str | None
    web_search_options: Mapping[str, Any]
