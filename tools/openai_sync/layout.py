"""The layout of declared types: their modules here, and their differences from `openai`'s types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

#: The hand-written modules, by package, each with the modules of `openai` whose names it has. Responses and
#: streams of every provider are converted to chat completions, legacy completions, embeddings and
#: moderations. Their fields have defaults and accept values from other vendors' servers, and types with
#: equal fields share a class, for fast decoding; the `openai` package declares none of that. Parsed responses
#: have behaviour of their own.
BY_HAND: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "completion": "completion completion_choice",
        "completion_usage": "completion_usage",
        "embedding": "embedding create_embedding_response embedding_model",
        "model": "model model_deleted",
        "moderation": "moderation moderation_create_response moderation_model",
    },
    "chat": {
        "chat_completion": "chat_completion",
        "chat_completion_chunk": "chat_completion_chunk",
        "chat_completion_message": (
            "chat_completion_message chat_completion_message_tool_call chat_completion_audio "
            "chat_completion_message_function_tool_call chat_completion_message_custom_tool_call"
        ),
        "logprobs": "chat_completion_token_logprob",
        "parsed_chat_completion": "parsed_chat_completion parsed_function_tool_call",
    },
    "responses": {"parsed_response": "parsed_response"},
}

#: Modules whose types stay open objects although their package is declared.
LEFT_OPEN: Final[frozenset[str]] = frozenset(
    {
        # WebSocket messages, which this client does not support; they would need a second class per event.
        "responses.responses_client_event",
        "responses.responses_client_event_param",
        "responses.responses_server_event",
    }
)


@dataclass(frozen=True, slots=True)
class File:
    """A generated module with types of one package.

    Attributes:
        package: the package of the types, such as ``responses``.
        name: the module, such as ``events``.
        about: the first sentence of its docstring.
        starts: returns whether the module has the types of an `openai` module. Modules that those types need
            are included too, unless an earlier file has them.
    """

    package: str
    name: str
    about: str
    starts: Callable[[str], bool] = field(default=lambda _: True)


def _is_parameters(module: str) -> bool:
    return module.endswith(("_param", "_params"))


#: The generated modules. A type is in the first module that needs it, so reading a response does not import
#: the classes of streams and of parameters.
FILES: Final = (
    File("shared", "models", "Types that several responses share"),
    File("shared_params", "params", "Parameter types that several calls share"),
    File("chat", "models", "Types of stored chat completions", lambda module: not _is_parameters(module)),
    File("chat", "params", "Parameter types of chat completions"),
    File("responses", "models", "The response of the Responses API", lambda module: module == "response"),
    File(
        "responses", "events", "The events of a streamed response", lambda module: module.endswith("_event")
    ),
    File("responses", "items", "Other types of the Responses API", lambda m: not _is_parameters(m)),
    File("responses", "params", "Parameter types of the Responses API"),
)

#: Annotations that replace those of `openai`, by module, class and field.
FIELDS: Final[Mapping[str, str]] = {
    # Some servers send an object instead of JSON text; `LenientJsonText` converts it to text.
    "responses.response_function_tool_call.ResponseFunctionToolCall.arguments": "LenientJsonText",
    "responses.response_output_item.McpCall.arguments": "LenientJsonText",
    # This field repeats the caller's input. Validating it would build schemas for some forty more classes
    # before the first response is parsed, so it stays open.
    "responses.response.Response.instructions": "str | list[OpenObject] | None",
}

#: Classes with another base class, which adds behaviour: the module and the name of the base.
BASES: Final[Mapping[str, tuple[str, str]]] = {
    "responses.response.Response": ("specclient.types.responses.answer", "Answer"),
}

#: Unions of specclient: the members of an `openai` union without those that have parsed versions.
RESTS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "responses.response_output_item.OtherOutputItem": (
        "responses.response_output_item.ResponseOutputItem",
        frozenset({"ResponseOutputMessage", "ResponseFunctionToolCall"}),
    ),
    "responses.response_stream_event.OtherStreamEvent": (
        "responses.response_stream_event.ResponseStreamEvent",
        frozenset(
            {
                "ResponseCompletedEvent",
                "ResponseFunctionCallArgumentsDeltaEvent",
                "ResponseTextDeltaEvent",
                "ResponseTextDoneEvent",
            }
        ),
    ),
}

#: The modules of the other names that generated modules use.
HELPERS: Final[Mapping[str, str]] = {
    "Annotated": "typing",
    "Any": "typing",
    "Field": "pydantic",
    "Iterable": "collections.abc",
    "LenientJsonText": "specclient.types.base",
    "Literal": "typing",
    "Lenient": "specclient.types.base",
    "TaggedUnion": "specclient.types.tagged_union",
    "OpenObject": "specclient.types.open",
    "Required": "typing",
    "Sequence": "collections.abc",
    "TypeAlias": "typing",
    "TypedDict": "typing",
    "WireModel": "specclient.types.base",
}
