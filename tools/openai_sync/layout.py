"""Say which types are written out, in which module of ours, and where ours differ from `openai`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

#: The modules that are written by hand, by package, each with the modules of `openai` whose names it has.
#: Chat completions, the older completions, embeddings and moderations are what every provider's answer is
#: turned into, and what streams are decoded into. Their fields have defaults and take what servers of other
#: makers send, and equal shapes share a class, so decoding stays fast; the `openai` package declares none of
#: that. Parsed answers hold behaviour.
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

#: Modules whose types stay open objects, in the packages that are written out.
LEFT_OPEN: Final[frozenset[str]] = frozenset(
    {
        # The messages of a WebSocket, which this client does not speak: a second class for every event.
        "responses.responses_client_event",
        "responses.responses_client_event_param",
        "responses.responses_server_event",
    }
)


@dataclass(frozen=True, slots=True)
class File:
    """A generated module with the types of one package.

    Attributes:
        package: of the types: ``responses``; ``name``: of the module: ``events``.
        about: its first sentence.
        starts: tells which modules of `openai` it is for. What those need comes with them, but for what an
            earlier file has.
    """

    package: str
    name: str
    about: str
    starts: Callable[[str], bool] = field(default=lambda _: True)


def _is_parameters(module: str) -> bool:
    return module.endswith(("_param", "_params"))


#: The generated modules. A type is in the first that needs it, so who asks for a response does not load the
#: classes of streams, or of what is sent.
FILES: Final = (
    File("shared", "models", "What several answers hold"),
    File("shared_params", "params", "What several calls take"),
    File("chat", "models", "What is kept of chat completions", lambda module: not _is_parameters(module)),
    File("chat", "params", "What chat completions take"),
    File("responses", "models", "A response", lambda module: module == "response"),
    File(
        "responses", "events", "The events of a streamed response", lambda module: module.endswith("_event")
    ),
    File(
        "responses", "items", "What else answers of the Responses API hold", lambda m: not _is_parameters(m)
    ),
    File("responses", "params", "What responses take"),
)

#: The annotations that we have others for, by module, class and field.
FIELDS: Final[Mapping[str, str]] = {
    # Some servers send the object itself, which `LenientJsonText` turns into text.
    "responses.response_function_tool_call.ResponseFunctionToolCall.arguments": "LenientJsonText",
    "responses.response_output_item.McpCall.arguments": "LenientJsonText",
    # What the caller sent comes back here. Validating it would build schemas for some forty classes more
    # before the first answer is read, so it stays open.
    "responses.response.Response.instructions": "str | list[OpenObject] | None",
}

#: The classes that have another base, which holds behaviour: its module and its name.
BASES: Final[Mapping[str, tuple[str, str]]] = {
    "responses.response.Response": ("specclient.types.responses.answer", "Answer"),
}

#: Unions of ours: the members of one of `openai`, but for some, which parsed answers have other classes for.
RESTS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "responses.response_output_item.OtherOutputItem": (
        "responses.response_output_item.ResponseOutputItem",
        frozenset({"ResponseOutputMessage", "ResponseFunctionToolCall"}),
    ),
}

#: Where the names are that generated modules use beside those of `openai`.
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
