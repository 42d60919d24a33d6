"""Turn ``client.chat.completions.create(...)`` into a request for the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from specclient.pipeline import Pipeline
from specclient.resources.base import Runner, build_request
from specclient.stream import AsyncStream, Stream
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.params import ChatCreateParams
from specclient.types.request import Request

_KNOWN = frozenset(ChatCreateParams.__annotations__) | {"messages"}

Messages = Iterable[Mapping[str, Any]]


def _request(model: str, messages: Messages, stream: bool | None, params: Mapping[str, Any]) -> Request:
    return build_request("chat", model, {"messages": messages, **params}, known=_KNOWN, stream=bool(stream))


class AsyncCompletions:
    """``client.chat.completions``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

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
    async def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: bool | None = False,
        **params: Unpack[ChatCreateParams],
    ) -> ChatCompletion | AsyncStream[ChatCompletionChunk]:
        """Answer a conversation.

        Args:
            model: ``provider/model``, a bare name (the default provider's), or ``auto``.
            messages: the conversation so far.
            stream: hand out chunks as they come instead of the whole.
            params: see :class:`ChatCreateParams`.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        request = _request(model, messages, stream, params)
        if request.stream:
            return await self._pipeline.stream_chat(request)
        return await self._pipeline.chat(request)


class Completions:
    """``client.chat.completions`` of the synchronous client."""

    def __init__(self, pipeline: Pipeline, runner: Runner) -> None:
        self._pipeline = pipeline
        self._runner = runner

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
    def create(
        self,
        *,
        model: str,
        messages: Messages,
        stream: bool | None = False,
        **params: Unpack[ChatCreateParams],
    ) -> ChatCompletion | Stream[ChatCompletionChunk]:
        """Answer a conversation; see :meth:`AsyncCompletions.create`."""
        request = _request(model, messages, stream, params)
        if request.stream:
            return self._runner.stream(self._pipeline.stream_chat, request)
        return self._runner.run(self._pipeline.chat, request)


class AsyncChat:
    """``client.chat``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.completions = AsyncCompletions(pipeline)


class Chat:
    """``client.chat`` of the synchronous client."""

    def __init__(self, pipeline: Pipeline, runner: Runner) -> None:
        self.completions = Completions(pipeline, runner)
