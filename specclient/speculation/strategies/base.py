"""What every strategy is handed, and how the calls it makes add up to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from specclient.errors import UnsupportedParameterError
from specclient.providers.base import Endpoint
from specclient.providers.unsupported import drops
from specclient.speculation.strategies.worth import History
from specclient.stream import AsyncStream
from specclient.types.call import Call, Status
from specclient.types.capabilities import Capabilities
from specclient.types.request import Options, Request
from specclient.types.route import Decision
from specclient.types.strategy import Kind, Strategy
from specclient.types.usage import NANO, Cost, Speculation, Usage

#: What an engine in this process is taken to offer: the ``prediction`` of chats and completions, plain
#: completions that continue a text, and vLLM's form of scored prompts.
IN_PROCESS = Capabilities(
    prediction=True, rejected_billed=False, prefill="completions", verification="prompt_logprobs"
)


class Server(Protocol):
    """Serves calls at one model: each one is a part of the whole, recorded on its own."""

    async def whole(self, request: Request) -> Any:
        """Serve a request whole; the answer has its record as ``meta``. Raises what refuses or ends it."""
        ...

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream; returns once the answer has begun."""
        ...


@dataclass(slots=True)
class Outcome:
    """What a strategy has to say of its play, filled in as it goes.

    Attributes:
        notes: what was decided and why, in order.
        speculation: its own record; None leaves that of the target's last answer.
        unaltered: whether the answer is the target's as it came, so that its HTTP may be shown.
        head, dialect: of a stream that is passed on; see :class:`specclient.stream.AsyncStream`.
    """

    notes: list[str] = field(default_factory=list)
    speculation: Speculation | None = None
    unaltered: bool = False
    head: Any = None
    dialect: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
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
        outcome: see :class:`Outcome`.
    """

    request: Request
    strategy: Strategy
    endpoint: Endpoint | None
    model: str
    capabilities: Capabilities
    target: Server
    draft: Server | None
    clock: Callable[[], float]
    created: datetime
    price: Callable[[int], Decimal | None]
    history: History
    outcome: Outcome = field(default_factory=Outcome)

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


@dataclass(slots=True, kw_only=True)
class Whole:
    """The call that a strategy plays, as its parts are tied to it; ``begun`` is in seconds of the clock."""

    id: str
    kind: Kind
    request: Request
    route: Decision
    started_at: datetime
    begun: float
    parts: list[Call] = field(default_factory=list)


def unsupported(message: str, param: str) -> UnsupportedParameterError:
    """Return the error for what a strategy cannot express, with its parameter named."""
    error = UnsupportedParameterError(message)
    error.param = param
    return error


def given(request: Request, name: str) -> Any:
    """Return a parameter as the body will have it: ``extra_body`` wins; None where it is not given."""
    body = request.options.body
    return body[name] if name in body else request.params.get(name)


def unkeyed(options: Options) -> Options:
    """Return options without an idempotency key: it is that of the answer, not of a call that helps to it."""
    headers = {name: value for name, value in options.headers.items() if name.lower() != "idempotency-key"}
    return replace(options, headers=headers)


def text_of(answer: Any) -> str:
    """Return the text of an answer's first choice, chat or completion."""
    choice = answer.choices[0] if answer.choices else None
    message = getattr(choice, "message", None)
    said = getattr(choice, "text", "") if message is None else message.content
    return said if isinstance(said, str) else ""


def account(
    whole: Whole,
    outcome: Outcome,
    *,
    status: Status,
    latency_s: float,
    ttft_s: float | None,
    error: str | None,
) -> Call:
    """Return the record of a call played in parts: sums of theirs, its own times."""
    parts = tuple(whole.parts)
    last = parts[-1] if parts else None
    served = [part for part in parts if part.route.chosen == whole.route.chosen]
    final = served[-1] if served else None
    return Call(
        id=whole.id,
        started_at=whole.started_at,
        operation=whole.request.operation,
        model=whole.request.model,
        route=whole.route,
        streamed=whole.request.stream,
        served_model=final.served_model if final else None,
        status=status,
        error=error,
        http_status=last.http_status if last and error else None,
        usage=total_usage([part.usage for part in parts]),
        speculation=outcome.speculation or (final.speculation if final else None),
        cost=total_cost([part.cost for part in parts]),
        attempts=sum(part.attempts for part in parts) or 1,
        ttft_s=ttft_s,
        latency_s=latency_s,
        engine_s=_sum([part.engine_s for part in parts if part.engine_s is not None] or [None]),
        request_id=final.request_id if final else None,
        tags=dict(whole.request.options.tags),
        session=whole.request.options.session,
        strategy=whole.kind,
        strategy_reason="; ".join(outcome.notes) or None,
        parts=parts,
    )


def total_usage(parts: Sequence[Usage]) -> Usage:
    """Return the sum of what parts used; a kind that one of them does not tell of its own is unknown."""
    prompt, completion = _sum([p.prompt for p in parts]), _sum([p.completion for p in parts])
    whole = ("prompt", "completion", "estimated", "charges")
    beside = [each.name for each in fields(Usage) if each.name not in whole]
    told = {name: [v for p in parts if (v := getattr(p, name)) is not None] for name in beside}
    sums = {name: _sum(values or [None]) for name, values in told.items()}
    return Usage(prompt=prompt, completion=completion, estimated=any(p.estimated for p in parts), **sums)


def total_cost(parts: Sequence[Cost]) -> Cost:
    """Return the sum of what parts cost, each rounded to the nano-dollar as the ledger keeps it.

    So the record of the whole and the ledger's rows of its parts always agree. It is unknown where that of
    one part is.
    """
    sources = "; ".join(dict.fromkeys(part.source for part in parts)) or "no calls were made"
    estimated = any(part.estimated for part in parts)
    nanos = [part.nano for part in parts]
    if any(nano is None for nano in nanos):
        return Cost(source=sources, estimated=estimated)
    by_kind: dict[str, Decimal] = {}
    for part, nano in zip(parts, nanos, strict=True):
        rest = Decimal(nano or 0) / NANO
        for kind, dollars in part.by_kind.items():
            rounded = min(Decimal(int((dollars * NANO).to_integral_value())) / NANO, rest)
            by_kind[kind] = by_kind.get(kind, Decimal(0)) + rounded
            rest -= rounded
        if rest and part.by_kind:
            kind = max(part.by_kind, key=lambda each: part.by_kind[each])
            by_kind[kind] += rest
    return Cost(sum((Decimal(n or 0) for n in nanos), Decimal(0)) / NANO, by_kind, sources, estimated)


def _sum(values: Sequence[Any]) -> Any:
    return None if not values or any(value is None for value in values) else sum(values)
