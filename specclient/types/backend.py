"""What an in-process engine must offer to be routed to like a provider; found by entry point.

A distribution names a factory under the entry-point group ``specclient.backends``. The key is the
provider's name (``local``), the factory takes the table of that name from the configuration and
returns a :class:`Backend`; neither may load weights until a call needs them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.request import Request
from specclient.types.usage import Speculation

ENTRY_POINT_GROUP = "specclient.backends"


@dataclass(frozen=True, slots=True)
class BackendModel:
    """One model a backend can serve.

    Attributes:
        id: the name after ``provider/``.
        target: what runs; ``draft``: what proposes, None for plain decoding.
        method: how drafts are made (``plain``, ``draft``, …).
        context: tokens of prompt and answer together.
        options: how else it is loaded than by default (its type, device, quantisation, …).
    """

    id: str
    target: str
    draft: str | None = None
    method: str = "plain"
    context: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineTelemetry:
    """What an engine measured of one answer.

    Attributes:
        speculation: see :class:`specclient.types.usage.Speculation`.
        engine_s: seconds of engine time spent on it (prefill included, queueing not).
        pair: what ran, as ``target+draft``, or the target by itself where no model drafted.
    """

    speculation: Speculation | None = None
    engine_s: float | None = None
    pair: str | None = None


BackendResponse = ChatCompletion | Completion
BackendChunk = ChatCompletionChunk | Completion


class Backend(Protocol):
    """An engine behind the request pipeline."""

    def models(self) -> Sequence[BackendModel]:
        """List what can be served; cheap, imports no weights and no torch."""
        ...

    async def complete(self, request: Request, model: str) -> tuple[BackendResponse, EngineTelemetry]:
        """Serve a request whole; ``model`` is a :attr:`BackendModel.id`.

        Raises:
            NotFoundError, BadRequestError, EngineError: naming the value and what is allowed.
        """
        ...

    def stream(self, request: Request, model: str) -> AsyncGenerator[BackendChunk | EngineTelemetry, None]:
        """Serve a request in chunks, the last one with ``usage``, then one :class:`EngineTelemetry`.

        Closing the iterator early stops the work at once.
        """
        ...

    async def aclose(self) -> None:
        """Free what is held; safe to call twice."""
        ...


@runtime_checkable
class SupportsTokenCount(Protocol):
    """What a backend may offer beside: how long a prompt is for its models."""

    def count(self, request: Request, model: str) -> int | None:
        """Return the tokens of a request's prompt by the model's own tokenizer; loads no weights.

        None where the tokenizer is not on this machine, or the request is one that it cannot lay out.

        Raises:
            NotFoundError: for a model that is not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineState:
    """How an engine fares whose model is loaded.

    Attributes:
        name: of the model it serves, a :attr:`BackendModel.id`.
        unfinished: requests it holds, running and waiting.
        busy_s: seconds its models have worked so far.
    """

    name: str
    unfinished: int
    busy_s: float


@runtime_checkable
class SupportsEngineState(Protocol):
    """What a backend may offer beside: which of its models are loaded, and how they fare."""

    def state(self) -> Sequence[EngineState]:
        """Return the state of each engine that is loaded; waits for nothing."""
        ...


BackendFactory = Callable[[Mapping[str, Any]], Backend]
