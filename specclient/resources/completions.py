"""Turn ``client.completions.create(...)`` into a request for the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from specclient.pipeline import Pipeline
from specclient.resources.base import Runner, build_request
from specclient.stream import AsyncStream, Stream
from specclient.types.completion import Completion
from specclient.types.params import CompletionCreateParams
from specclient.types.request import Request

_KNOWN = frozenset(CompletionCreateParams.__annotations__) | {"prompt"}

Prompt = str | Iterable[str] | Iterable[int] | Iterable[Iterable[int]]


def _request(model: str, prompt: Prompt, stream: bool | None, params: Mapping[str, Any]) -> Request:
    return build_request("completion", model, {"prompt": prompt, **params}, known=_KNOWN, stream=bool(stream))


class AsyncCompletions:
    """``client.completions``: text in, the text that follows out."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @overload
    async def create(
        self,
        *,
        model: str,
        prompt: Prompt,
        stream: Literal[False] | None = ...,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion: ...
    @overload
    async def create(
        self, *, model: str, prompt: Prompt, stream: Literal[True], **params: Unpack[CompletionCreateParams]
    ) -> AsyncStream[Completion]: ...
    async def create(
        self,
        *,
        model: str,
        prompt: Prompt,
        stream: bool | None = False,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion | AsyncStream[Completion]:
        """Continue a text.

        Args:
            model: ``provider/model``, a bare name (the default provider's), or ``auto``.
            prompt: a text, or its token ids; endpoints may take several.
            stream: hand out chunks as they come instead of the whole.
            params: see :class:`CompletionCreateParams`.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        request = _request(model, prompt, stream, params)
        if request.stream:
            return await self._pipeline.stream_completion(request)
        return await self._pipeline.completion(request)


class Completions:
    """``client.completions`` of the synchronous client."""

    def __init__(self, pipeline: Pipeline, runner: Runner) -> None:
        self._pipeline = pipeline
        self._runner = runner

    @overload
    def create(
        self,
        *,
        model: str,
        prompt: Prompt,
        stream: Literal[False] | None = ...,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion: ...
    @overload
    def create(
        self, *, model: str, prompt: Prompt, stream: Literal[True], **params: Unpack[CompletionCreateParams]
    ) -> Stream[Completion]: ...
    def create(
        self,
        *,
        model: str,
        prompt: Prompt,
        stream: bool | None = False,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion | Stream[Completion]:
        """Continue a text; see :meth:`AsyncCompletions.create`."""
        request = _request(model, prompt, stream, params)
        if request.stream:
            return self._runner.stream(self._pipeline.stream_completion, request)
        return self._runner.run(self._pipeline.completion, request)
