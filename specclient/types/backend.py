"""The interface of engines that run in this process and serve requests like a provider.

A distribution registers a factory in the entry-point group ``specclient.backends``, under the name of the
provider (``local``). The factory takes the configuration table of that name, with the
:class:`specclient.types.request_limits.RequestLimits` under ``requests``, and returns a :class:`Backend`.
Neither may load weights before a call needs them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.model_kind import CHAT_KIND, ModelKind
from specclient.types.request import Request
from specclient.types.usage import Speculation

if TYPE_CHECKING:
    from specclient.types import CreateEmbeddingResponse

ENTRY_POINT_GROUP = "specclient.backends"


@dataclass(frozen=True, slots=True)
class BackendModel:
    """One model that a backend serves.

    Attributes:
        id: the name after ``provider/``.
        target: the target's checkpoint; ``draft``: the draft's checkpoint, None for plain decoding.
        method: how drafts are made (``plain``, ``draft``, …).
        context: the maximum of tokens of prompt and answer together, or of a text to embed.
        options: load options that differ from the defaults (dtype, device, quantization, …).
        kind: ``chat`` (chats and completions) or ``embedding``.
        dimensions: size of an embedding; None where unknown, and of a model of another kind.
    """

    id: str
    target: str
    draft: str | None = None
    method: str = "plain"
    context: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: ModelKind = CHAT_KIND
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class EngineTelemetry:
    """An engine's measurements of one answer.

    Attributes:
        speculation: see :class:`specclient.types.usage.Speculation`.
        engine_s: seconds of engine time, including prefill, without queueing.
        pair: the checkpoints as ``target+draft``, or the target alone if no model drafted.
    """

    speculation: Speculation | None = None
    engine_s: float | None = None
    pair: str | None = None


BackendResponse: TypeAlias = "ChatCompletion | Completion | CreateEmbeddingResponse"
BackendChunk = ChatCompletionChunk | Completion


class Backend(Protocol):
    """An engine that serves requests of the pipeline."""

    def models(self) -> Sequence[BackendModel]:
        """Return the models that can be served, without loading weights or importing torch."""
        ...

    async def complete(self, request: Request, model: str) -> tuple[BackendResponse, EngineTelemetry]:
        """Serve a request without streaming; ``model`` is a :attr:`BackendModel.id`.

        Raises:
            NotFoundError, BadRequestError, EngineError: the message names the value and what is allowed.
        """
        ...

    def stream(self, request: Request, model: str) -> AsyncGenerator[BackendChunk | EngineTelemetry, None]:
        """Yield the chunks of an answer, the last one with ``usage``, then one :class:`EngineTelemetry`.

        Closing the generator stops the work at once.
        """
        ...

    async def aclose(self) -> None:
        """Unload the models; may be called twice."""
        ...


@runtime_checkable
class SupportsTokenCount(Protocol):
    """Optional interface of a backend: counts the tokens of prompts."""

    def count(self, request: Request, model: str) -> int | None:
        """Return the number of prompt tokens by the model's own tokenizer, without loading weights.

        None if the tokenizer is not on this machine, or the chat template does not support the request.

        Raises:
            NotFoundError: the model is unknown.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state of an engine whose model is loaded.

    Attributes:
        name: the model that it serves, a :attr:`BackendModel.id`.
        unfinished: the number of running and waiting requests.
        busy_s: seconds its models have worked so far.
    """

    name: str
    unfinished: int
    busy_s: float


@runtime_checkable
class SupportsEngineState(Protocol):
    """Optional interface of a backend: the state of its loaded models."""

    def state(self) -> Sequence[EngineState]:
        """Return the state of each loaded engine, without blocking."""
        ...


BackendFactory = Callable[[Mapping[str, Any]], Backend]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a running server.

    Attributes:
        base_url: the base URL of its API, on this machine.
        key: the key that its requests need; empty if it needs none.
        model: the model's name in requests.
        metrics: whether its counters are read before and after each call, because its answers do not report
            speculation.
    """

    base_url: str
    key: str = field(repr=False)
    model: str
    metrics: bool = False


class ModelServer(Protocol):
    """A server that a backend starts for one of its models when a call needs it.

    Attributes:
        provider: the name of the preset whose dialect and capabilities are the server's; empty for OpenAI's
            API, of which nothing else is known.
        title: the server's name in messages.
        template: the folder, file or hub id of its chat template; None if unknown.
        refused: request parameters that it does not accept.
    """

    provider: str
    title: str
    template: str | None
    refused: Sequence[str]

    async def acquire(self) -> ServerAddress:
        """Start the server unless it runs, and return its address once it answers.

        Until :meth:`release` is called, the server is not stopped because it is idle. Without a wait, this
        takes microseconds.

        Raises:
            ConfigurationError: the server cannot be started as configured.
            EngineError: it ended, or did not answer in time; the message has the last lines of its log.
        """
        ...

    def release(self) -> None:
        """Note that a call has ended; once for each :meth:`acquire` that returned."""
        ...


@runtime_checkable
class SupportsServers(Protocol):
    """Optional interface of a backend: models that servers of their own serve, and not this process."""

    def server(self, model: str) -> ModelServer | None:
        """Return the server of a model, without starting it; None if this process serves the model."""
        ...
