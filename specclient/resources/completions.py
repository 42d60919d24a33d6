"""The resource ``client.completions``: continue a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, overload

from specclient.call.stream import AsyncStream, Stream
from specclient.resources.base import Resource, build_request
from specclient.resources.signatures import with_signature
from specclient.resources.traced_methods import traceable
from specclient.types.completion import Completion
from specclient.types.create_params import CompletionCreateParams
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request

CompletionPrompt = str | Iterable[str] | Iterable[int] | Iterable[Iterable[int]] | None


def _request(model: str, prompt: CompletionPrompt, stream: bool | None, params: Mapping[str, Any]) -> Request:
    return build_request(COMPLETION, {"model": model, "prompt": prompt, "stream": stream, **params})


class AsyncCompletions(Resource):
    """``client.completions``: continues a text."""

    is_async, resource_name = True, "completions"

    @overload
    async def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: Literal[False] | None = ...,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion: ...
    @overload
    async def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: Literal[True],
        **params: Unpack[CompletionCreateParams],
    ) -> AsyncStream[Completion]: ...
    @traceable
    @with_signature("model prompt", CompletionCreateParams, adds="stream")
    async def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: bool | None = False,
        **params: Unpack[CompletionCreateParams],
    ) -> Any:
        """Continue a text.

        Args:
            model: ``provider/model``, a bare name (the default provider's), or ``auto``.
            prompt: a text or its token ids; some endpoints accept several.
            stream: return a stream of chunks instead of the whole completion.
            params: see :class:`CompletionCreateParams`.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        return await self.caller.call(_request(model, prompt, stream, params))


class Completions(Resource):
    """``client.completions`` of the synchronous client."""

    resource_name = "completions"

    @overload
    def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: Literal[False] | None = ...,
        **params: Unpack[CompletionCreateParams],
    ) -> Completion: ...
    @overload
    def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: Literal[True],
        **params: Unpack[CompletionCreateParams],
    ) -> Stream[Completion]: ...
    @traceable
    @with_signature("model prompt", CompletionCreateParams, adds="stream")
    def create(
        self,
        *,
        model: str,
        prompt: CompletionPrompt,
        stream: bool | None = False,
        **params: Unpack[CompletionCreateParams],
    ) -> Any:
        """Continue a text; see :meth:`AsyncCompletions.create`."""
        return self.caller.call(_request(model, prompt, stream, params))
