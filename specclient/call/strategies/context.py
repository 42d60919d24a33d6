"""What every strategy is handed, and what it says of its play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from specclient.call.strategies.cost_benefit import PredictionHistory
from specclient.call.stream import AsyncStream
from specclient.errors import UnsupportedParameterError
from specclient.providers.endpoint import Endpoint
from specclient.providers.unsupported import drops
from specclient.types.capabilities import Capabilities
from specclient.types.request import PerCallOptions, Request
from specclient.types.strategy import Strategy
from specclient.types.usage import Speculation

#: What an engine in this process is taken to offer: the ``prediction`` of chats and completions, plain
#: completions that continue a text, and vLLM's form of scored prompts.
LOCAL_ENGINE_CAPABILITIES = Capabilities(
    prediction=True, rejected_billed=False, prefill="completions", verification="prompt_logprobs"
)


class ModelClient(Protocol):
    """Serves calls at one model: each one is a part of the whole, recorded on its own."""

    async def whole(self, request: Request) -> Any:
        """Serve a request whole; the answer has its record as ``meta``. Raises what refuses or ends it."""
        ...

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream; returns once the answer has begun."""
        ...


@dataclass(slots=True)
class StrategyOutcome:
    """What a strategy has to say of its play, filled in as it goes.

    Attributes:
        notes: what was decided and why, in order.
        speculation: its own record; None leaves that of the target's last answer.
        unaltered: whether the answer is the target's as it came, so that its HTTP may be shown.
        http, dialect: of a stream that is passed on; see :class:`specclient.call.stream.AsyncStream`.
    """

    notes: list[str] = field(default_factory=list)
    speculation: Speculation | None = None
    unaltered: bool = False
    http: Any = None
    dialect: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """What a strategy plays with.

    Attributes:
        request: as the caller made it, its strategy taken out.
        strategy: as the caller gave it.
        endpoint: the target's; None where an engine in this process serves it.
        model: the name sent there.
        capabilities: what is known of that model.
        target: serves it; ``draft``: serves the model that drafts, None where none is named.
        clock: monotonic seconds.
        created: when the call was made, for answers that are put together here.
        price: the dollars that so many generated tokens of the target cost, None where unknown.
        history: how predictions of each pair of models have fared.
        outcome: see :class:`StrategyOutcome`.
    """

    request: Request
    strategy: Strategy
    endpoint: Endpoint | None
    model: str
    capabilities: Capabilities
    target: ModelClient
    draft: ModelClient | None
    clock: Callable[[], float]
    created: datetime
    price: Callable[[int], Decimal | None]
    history: PredictionHistory
    outcome: StrategyOutcome = field(default_factory=StrategyOutcome)

    @property
    def where(self) -> str:
        """The target's provider, as errors and notes call it."""
        return "the local engine" if self.endpoint is None else f"provider {self.endpoint.name!r}"

    @property
    def drops(self) -> bool:
        """Whether what cannot be expressed is left out instead of refused."""
        if self.endpoint is None:
            return bool(self.request.options.drop_params)
        return drops(self.request, self.endpoint)

    def note(self, text: str) -> None:
        """Say in the record what was decided, and why."""
        self.outcome.notes.append(text)


def unsupported_parameter(message: str, param: str) -> UnsupportedParameterError:
    """Return the error for what a strategy cannot express, with its parameter named."""
    error = UnsupportedParameterError(message)
    error.param = param
    return error


def request_param(request: Request, name: str) -> Any:
    """Return a parameter as the body will have it: ``extra_body`` wins; None where it is not given."""
    body = request.options.body
    return body[name] if name in body else request.params.get(name)


def without_idempotency_key(options: PerCallOptions) -> PerCallOptions:
    """Return options without an idempotency key: it is that of the answer, not of a call that helps to it."""
    headers = {name: value for name, value in options.headers.items() if name.lower() != "idempotency-key"}
    return replace(options, headers=headers)


def answer_text(answer: Any) -> str:
    """Return the text of an answer's first choice, chat or completion."""
    choice = answer.choices[0] if answer.choices else None
    message = getattr(choice, "message", None)
    said = getattr(choice, "text", "") if message is None else message.content
    return said if isinstance(said, str) else ""
