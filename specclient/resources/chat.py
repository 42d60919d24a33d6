"""The resource ``client.chat.completions``: create, parse and stream chat completions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from pydantic import BaseModel

from specclient.call.stream import AsyncStream, Stream
from specclient.resources.base import Resource, build_request
from specclient.resources.signatures import with_signature
from specclient.resources.table_resources import with_table_methods
from specclient.resources.traced_methods import traceable
from specclient.types.create_params import ChatCreateParams
from specclient.types.inference_methods import CHAT
from specclient.types.params import NOT_GIVEN
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.structured.chat.stream import (
        AsyncChatCompletionStreamManager,
        ChatCompletionStreamManager,
    )
    from specclient.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion

Messages = Iterable[Mapping[str, Any] | BaseModel]
T = TypeVar("T")

#: `openai` has a package here, whose modules have no files here; see :mod:`specclient.runtime.module_paths`.
__path__: list[str] = []


def _request(model: str, messages: Messages, stream: bool | None, params: Mapping[str, Any]) -> Request:
    wanted = params.get("response_format")
    if inspect.isclass(wanted) and issubclass(wanted, BaseModel):
        raise TypeError(
            f"response_format is the class {wanted.__name__}, which chat.completions.create() does "
            "not parse; use chat.completions.parse() instead"
        )
    return build_request(CHAT, {"model": model, "messages": messages, "stream": stream, **params})


def _wire_params(
    response_format: Any, params: Mapping[str, Any], helper: Literal["parse", "stream"]
) -> tuple[dict[str, Any], Any]:
    """Return the parameters of :meth:`Completions.create` for a parsed completion, and the tools as sent.

    Args:
        response_format: the type of the parsed message.
        params: the other parameters but model and messages.
        helper: the method that parses.
    """
    structured = importlib.import_module("specclient.structured")  # slow to import, and rarely needed

    take = structured.given_tools if helper == "stream" else structured.strict_tools
    tools = take(params.get("tools", NOT_GIVEN))
    headers = {"X-Stainless-Helper-Method": f"chat.completions.{helper}"}
    wire = {
        **params,
        "response_format": structured.chat_format(response_format),
        "tools": tools,
        "extra_headers": {**headers, **(params.get("extra_headers") or {})},
    }
    return wire, tools


def _parsing(
    model: str, messages: Messages, response_format: Any, params: Mapping[str, Any]
) -> tuple[Request, Callable[[Any], Any]]:
    """Return the request of a parsed completion, and the parser of the response."""
    wire, tools = _wire_params(response_format, params, "parse")
    request = build_request(CHAT, {"model": model, "messages": messages, **wire})

    def parse(answer: ChatCompletion) -> Any:
        structured = importlib.import_module("specclient.structured")
        return structured.parse_chat_completion(answer, response_format=response_format, input_tools=tools)

    return request, parse


@with_table_methods("chat.completions", is_async=True)
class AsyncCompletions(Resource):
    """``client.chat.completions``."""

    @overload
    async def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: Literal[False] | None = ...,
        **params: Unpack[ChatCreateParams],
    ) -> ChatCompletion: ...
    @overload
    async def create(
        self, *, model: str, messages: Messages, stream: Literal[True], **params: Unpack[ChatCreateParams]
    ) -> AsyncStream[ChatCompletionChunk]: ...
    @traceable
    @with_signature("messages model", ChatCreateParams, adds="stream")
    async def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: bool | None = False,
        **params: Unpack[ChatCreateParams],
    ) -> Any:
        """Create a completion of a conversation.

        Args:
            model: ``provider/model``, a bare name (the default provider's), or ``auto``.
            messages: the conversation so far.
            stream: return a stream of chunks instead of the whole completion.
            params: see :class:`ChatCreateParams`.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        return await self.caller.call(_request(model, messages, stream, params))

    @traceable
    @with_signature("messages model", ChatCreateParams)
    async def parse(
        self, *, model: str, messages: Messages, response_format: Any = NOT_GIVEN, **params: Any
    ) -> ParsedChatCompletion[Any]:
        """Create a completion and parse it as ``response_format``.

        Args:
            response_format: a pydantic model, a dataclass, or a JSON schema: the type of ``message.parsed``.
            params: as for :meth:`create`. The arguments of calls to tools from
                :func:`specclient.pydantic_function_tool` are parsed too.

        Raises:
            LengthFinishReasonError, ContentFilterFinishReasonError: the completion was cut off or filtered.
            OpenAIError: as for :meth:`create`.
        """
        request, parse = _parsing(model, messages, response_format, params)
        answer: ParsedChatCompletion[Any] = await self.caller.call(request, parse)
        return answer

    @with_signature("messages model", ChatCreateParams)
    def stream(
        self, *, model: str, messages: Messages, response_format: Any = NOT_GIVEN, **params: Any
    ) -> AsyncChatCompletionStreamManager[Any]:
        """Stream a completion as events, in an ``async with`` block; takes the arguments of :meth:`parse`."""
        from specclient.structured.chat.stream import AsyncChatCompletionStreamManager  # noqa: PLC0415

        wire, tools = _wire_params(response_format, params, "stream")
        send: Any = partial(self.create, model=model, messages=messages, stream=True, **wire)
        return AsyncChatCompletionStreamManager(send, response_format=response_format, input_tools=tools)


@with_table_methods("chat.completions", is_async=False)
class Completions(Resource):
    """``client.chat.completions`` of the synchronous client."""

    @overload
    def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: Literal[False] | None = ...,
        **params: Unpack[ChatCreateParams],
    ) -> ChatCompletion: ...
    @overload
    def create(
        self, *, model: str, messages: Messages, stream: Literal[True], **params: Unpack[ChatCreateParams]
    ) -> Stream[ChatCompletionChunk]: ...
    @traceable
    @with_signature("messages model", ChatCreateParams, adds="stream")
    def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: bool | None = False,
        **params: Unpack[ChatCreateParams],
    ) -> Any:
        """Create a completion of a conversation; see :meth:`AsyncCompletions.create`."""
        return self.caller.call(_request(model, messages, stream, params))

    @traceable
    @with_signature("messages model", ChatCreateParams)
    def parse(
        self, *, model: str, messages: Messages, response_format: Any = NOT_GIVEN, **params: Any
    ) -> ParsedChatCompletion[Any]:
        """Create a completion and parse it; see :meth:`AsyncCompletions.parse`."""
        request, parse = _parsing(model, messages, response_format, params)
        answer: ParsedChatCompletion[Any] = self.caller.call(request, parse)
        return answer

    @with_signature("messages model", ChatCreateParams)
    def stream(
        self, *, model: str, messages: Messages, response_format: Any = NOT_GIVEN, **params: Any
    ) -> ChatCompletionStreamManager[Any]:
        """Stream a completion as events, in a ``with`` block; takes the arguments of :meth:`parse`."""
        from specclient.structured.chat.stream import ChatCompletionStreamManager  # noqa: PLC0415

        wire, tools = _wire_params(response_format, params, "stream")
        send: Any = partial(self.create, model=model, messages=messages, stream=True, **wire)
        return ChatCompletionStreamManager(send, response_format=response_format, input_tools=tools)


class AsyncChat(Resource):
    """``client.chat``."""

    @cached_property
    def completions(self) -> AsyncCompletions:
        """Chat completions."""
        return AsyncCompletions(self.caller)


class Chat(Resource):
    """``client.chat`` of the synchronous client."""

    @cached_property
    def completions(self) -> Completions:
        """Chat completions."""
        return Completions(self.caller)


def __getattr__(name: str) -> Any:
    """Return the class of another resource that `openai` has under this path."""
    return importlib.import_module("specclient.resources.module_tree").find("chat", name)
