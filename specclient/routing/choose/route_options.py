"""Turn what is known of a route before a call into an option, and with its estimate into figures."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from specclient.prices.billing import Quote, total_of
from specclient.routing.learn.draft_depth import best_depth, expected_tokens
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types.route import PromptTask
from specclient.types.strategy import Strategy

__all__ = [
    "CallPrediction",
    "ClientSideDraft",
    "RouteOption",
    "RouteRequest",
    "Tariff",
    "exact_cost",
    "option_depth",
    "predict_call",
    "slow_s",
]

#: Tokens drafted at a time where a play from this side has no depth of its own: each round is a request.
ROUND_TOKENS = 16
_NANO = Decimal("1e-9")
_MILLION = 1e6
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a call costs, as a sum: so much, so much for each token and each second.

    Attributes:
        quote: the price, from which exact dollars are worked out.
        call, prompt, output, second: dollars for a call, for a token of its prompt and of its answer, and for
            a second of work on it; near enough to compare routes by.
    """

    quote: Quote
    call: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    second: float = 0.0

    @classmethod
    def of(cls, quote: Quote | None) -> Tariff | None:
        """Return a price as a sum, None where there is none for what a call holds."""
        if quote is None:
            return None
        rates = quote.rates
        if rates.input is not None and rates.output is None:
            return None
        return cls(
            quote,
            call=float(rates.per_call or 0),
            prompt=float(rates.input or 0) / _MILLION,
            output=0.0 if rates.input is None else float(rates.output or 0) / _MILLION,
            second=sum(float(rate) for rate in rates.per_hour.values()) / _HOUR,
        )

    def dollars(
        self, prompt_tokens: int, tokens: int, engine_s: float | None, latency_s: float | None
    ) -> Decimal | None:
        """Return what :meth:`specclient.prices.prices.Prices.predict` says, None where that is unknown."""
        return total_of(prompt_tokens, tokens, self.quote.rates, latency_s if engine_s is None else engine_s)


@dataclass(frozen=True, slots=True)
class ClientSideDraft:
    """The other half of a play from this side of the wire: who drafts, and what that is expected to bring.

    Attributes:
        route: of the draft; ``tariff``: its price.
        strategy: the play.
        local: whether the draft stays on this machine.
        greedy: whether it is exact for greedy completions alone.
    """

    route: str
    strategy: Strategy
    tariff: Tariff | None
    local: bool = False
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class RouteOption:
    """A route that could be taken, and all that is known of it but what its calls have taught.

    Attributes:
        route: ``provider/model``; ``provider`` and ``model``: its parts as they are sent.
        unavailable: why it cannot be taken now and the way out, None if it can.
        local: whether calls stay on this machine.
        quality: its tier, from 0 to 1; None where unknown.
        tariff: its price, None where unknown.
        scale: tokens that its vocabulary makes of a prompt for each one that was estimated.
        context: tokens of prompt and answer that it can hold, None where unknown.
        draft: the name of what drafts for it over there, None where unknown or nothing.
        acceptance, cost_ratios: what is assumed of that draft by task: the share of its tokens that are kept,
            and the cost of one in passes of the target; empty where nothing is.
        strategy: how speculation is played from this side, where the policy says so.
        played: a play that a pair makes possible, None where the endpoint is left to itself.
    """

    route: str
    provider: str
    model: str
    unavailable: str | None = None
    local: bool = False
    quality: float | None = None
    tariff: Tariff | None = None
    scale: float = 1.0
    context: int | None = None
    draft: str | None = None
    acceptance: tuple[tuple[PromptTask, float], ...] = ()
    cost_ratios: tuple[tuple[PromptTask, float], ...] = ()
    strategy: Strategy | None = None
    played: ClientSideDraft | None = None

    @property
    def bent(self) -> bool:
        """Whether its figures are no line in the tokens of prompt and answer."""
        return self.played is not None

    def accepted(self, task: PromptTask) -> float | None:
        """Return the acceptance that is assumed of its draft, None where nothing is."""
        return next((rate for each, rate in self.acceptance if each == task), None)


class RouteRequest(NamedTuple):
    """One call to find a route for.

    Attributes:
        task: what its prompt was taken for.
        prompt_tokens: of its prompt, as estimated for all routes alike.
        length: of its answer, as predicted.
        greedy: whether its answer is greedy, so that drafts can be verified token by token.
        room: tokens that engines must have left for the answer, or refuse the call: the most it may hold.
    """

    task: PromptTask
    prompt_tokens: int
    length: AnswerLength
    greedy: bool = False
    room: int = 0


class CallPrediction(NamedTuple):
    """What is predicted of one call on one option; None is unknown.

    Attributes:
        dollars: for an answer of the predicted length.
        seconds: median to the whole answer; ``slow_s``: what the policy's share of calls keep.
        first_s: median to the first token; ``first_slow_s``: what the policy's share of calls keep.
    """

    dollars: float | None
    seconds: float | None
    slow_s: float | None
    first_s: float | None
    first_slow_s: float | None

    def hopeful(self, times: float) -> CallPrediction:
        """Return what it would be, were it so many times faster."""
        seconds = (None if each is None else each / times for each in self[1:])
        return CallPrediction(self.dollars, *seconds)


def predict_call(
    option: RouteOption, estimate: RouteEstimate, asked: RouteRequest, drafting: RouteEstimate | None = None
) -> CallPrediction:
    """Predict a call on an option.

    Args:
        drafting: of the route that drafts, where the option is a play.
    """
    if option.played is not None:
        return _played(option, option.played, estimate, asked, drafting or RouteEstimate())
    n, tariff = asked.length.middle, option.tariff
    seconds = estimate.latency_s(n)
    worked = seconds if estimate.engine_token_s is None else estimate.engine_token_s * n
    dollars = None
    if tariff is not None and (worked is not None or not tariff.second):
        dollars = tariff.call + tariff.prompt * option.scale * asked.prompt_tokens + tariff.output * n
        dollars += tariff.second * (worked or 0.0)
    first_slow_s = estimate.ttft_limit_s  # without it nobody has seen when a first token comes
    first_s = None if first_slow_s is None else estimate.ttft_s
    return CallPrediction(dollars, seconds, slow_s(estimate, n), first_s, first_slow_s)


def slow_s(estimate: RouteEstimate, tokens: int) -> float | None:
    """Return the seconds that the policy's share of answers of so many tokens keep, None where unknown."""
    if estimate.ttft_s is None or estimate.token_s is None:
        return None
    return estimate.late * estimate.ttft_s + estimate.late * estimate.token_s * tokens


def _played(
    option: RouteOption,
    played: ClientSideDraft,
    target: RouteEstimate,
    asked: RouteRequest,
    draft: RouteEstimate,
) -> CallPrediction:
    """Predict a call that this side plays: an answer drafted and verified whole, or round after round."""
    n, p = asked.length.middle, asked.prompt_tokens * option.scale
    kept = option.accepted(asked.task) or 0.0
    drafts, verifies = played.tariff, option.tariff
    if played.strategy.kind == "remote":
        depth = played.strategy.depth or ROUND_TOKENS
        rounds = n / expected_tokens(kept, depth)
        sent, written, own = rounds * (p + n / 2), rounds * depth, rounds
    else:
        rounds, depth, sent, written = 1.0, n, p, float(n)
        own = n * (2.0 - kept)  # what was refused is written again, and billed twice
    dollars = None
    if drafts is not None and verifies is not None and not (drafts.second or verifies.second):
        dollars = (drafts.call + verifies.call) * rounds + (drafts.prompt + verifies.prompt) * sent
        dollars += drafts.output * written + verifies.output * own
    drafted = draft.latency_s(depth)
    if drafted is None or target.ttft_s is None or target.token_s is None:
        return CallPrediction(dollars, None, None, None, None)
    seconds = (drafted + target.ttft_s) * rounds
    if played.strategy.kind != "remote":
        seconds += target.token_s * n * (1.0 - kept)
    late = max(draft.late, target.late)
    first = drafted + target.ttft_s
    return CallPrediction(dollars, seconds, late * seconds, first, late * first)


def exact_cost(
    option: RouteOption,
    estimate: RouteEstimate,
    asked: RouteRequest,
    tokens: int,
    drafting: RouteEstimate | None = None,
) -> Decimal | None:
    """Return the dollars of an answer of so many tokens, to the last digit where the price says them."""
    if option.tariff is None:
        return None
    if option.played is not None:
        length = AnswerLength(tokens, tokens, tokens)
        found = predict_call(option, estimate, asked._replace(length=length), drafting).dollars
        return None if found is None else Decimal(repr(found)).quantize(_NANO)
    engine = estimate.engine_token_s
    return option.tariff.dollars(
        round(asked.prompt_tokens * option.scale),
        tokens,
        None if engine is None else engine * tokens,
        estimate.latency_s(tokens),
    )


def option_depth(option: RouteOption, estimate: RouteEstimate, asked: RouteRequest) -> int | None:
    """Return how many tokens to draft at a time: as learned, else by what is assumed of the pair."""
    if option.played is not None:
        return option.played.strategy.depth
    if estimate.depth is not None:
        return estimate.depth
    alpha = option.accepted(asked.task) if estimate.acceptance_rate is None else estimate.acceptance_rate
    ratio = next((each for task, each in option.cost_ratios if task == asked.task), None)
    if alpha is None or ratio is None:
        return None
    return best_depth(alpha, ratio, task=asked.task, prompt_tokens=asked.prompt_tokens)
