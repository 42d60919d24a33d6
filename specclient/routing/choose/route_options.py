"""Route options: what is known of a route before a call, and the prediction of a call on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from specclient.routing.choose.tariff import Tariff
from specclient.routing.choose.token_sum import TokenSum
from specclient.routing.learn.draft_depth import best_depth, expected_tokens
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.routing.learn.session_caches import HeldPrefix
from specclient.types.criterion import CandidateCall, PromptTask
from specclient.types.strategy import Strategy

__all__ = [
    "NOTHING_HELD",
    "ClientSideDraft",
    "RouteOption",
    "RouteRequest",
    "exact_cost",
    "option_depth",
    "predict_call",
    "token_sums",
]

#: Tokens drafted at a time by a client-side strategy without a depth of its own; each round is a request.
ROUND_TOKENS = 16
_NANO = Decimal("1e-9")
#: What routes hold of a prompt of no session.
NOTHING_HELD: Mapping[str, HeldPrefix] = {}


@dataclass(frozen=True, slots=True)
class ClientSideDraft:
    """A draft model that this client calls itself, for a target that verifies its tokens.

    Attributes:
        route: of the draft.
        tariff: its price.
        strategy: how drafting and verification run.
        local: whether the draft stays on this machine.
        greedy: whether the strategy is exact for greedy completions only.
    """

    route: str
    strategy: Strategy
    tariff: Tariff | None
    local: bool = False
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class RouteOption:
    """A route that could be taken, with everything known about it except what its calls have taught.

    Attributes:
        route: ``provider/model``.
        provider, model: its parts as they are sent.
        unavailable: why it cannot be taken now, and what to do; None if it can.
        local: whether calls stay on this machine.
        quality: its tier, from 0 to 1; None where unknown.
        tariff: its price, None where unknown.
        scale: tokens of its own vocabulary per estimated token of a prompt.
        context: the most tokens of prompt and answer together, None where unknown.
        published_context: whether the context is from the catalogue, not from the engine. Prompts are only
            estimated, so a route is refused by it only if the prompt is clearly longer.
        draft: the name of the server-side draft model, None if unknown or none.
        acceptance, cost_ratios: assumptions about the draft by task: the share of accepted tokens, and the
            cost of drafting a token in passes of the target; empty without any.
        strategy: how speculation runs from this side, if the policy sets it.
        client_side_draft: the draft that this client calls itself; None leaves speculation to the endpoint.
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
    published_context: bool = False
    draft: str | None = None
    acceptance: tuple[tuple[PromptTask, float], ...] = ()
    cost_ratios: tuple[tuple[PromptTask, float], ...] = ()
    strategy: Strategy | None = None
    client_side_draft: ClientSideDraft | None = None

    def accepted(self, task: PromptTask) -> float | None:
        """Return the assumed acceptance rate of its draft, None without an assumption."""
        for each, rate in self.acceptance:
            if each == task:
                return rate
        return None


class RouteRequest(NamedTuple):
    """One call to find a route for.

    Attributes:
        task: the kind of its prompt.
        prompt_tokens: of its prompt, the same estimate for all routes.
        length: the predicted length of its answer.
        greedy: whether its answer is greedy, so that drafts can be verified token by token.
        reserved_tokens: tokens of context that engines must have left for the answer: its greatest length.
        tier: the service tier that it asks for, other than the standard one.
        held: the beginning of the prompt that routes may hold in their caches, by route.
    """

    task: PromptTask
    prompt_tokens: int
    length: AnswerLength
    greedy: bool = False
    reserved_tokens: int = 0
    tier: str | None = None
    held: Mapping[str, HeldPrefix] = NOTHING_HELD

    @property
    def writes(self) -> bool:
        """Whether the call writes its prompt to caches at a price, as the last one of its session did."""
        return any(each.written for each in self.held.values())

    def cached(self, route: str) -> float:
        """Return the tokens of the prompt that a route is expected to have in its cache."""
        held = self.held.get(route) if self.held else None
        return 0.0 if held is None else held.expected


def predict_call(
    option: RouteOption,
    estimate: RouteEstimate,
    request: RouteRequest,
    drafting: RouteEstimate | None = None,
    exact_cost_usd: Decimal | None = None,
) -> CandidateCall:
    """Predict a call on an option.

    Args:
        drafting: the estimate of the draft's route, for options with a client-side draft.
        exact_cost_usd: its exact dollars (:func:`exact_cost`), for a result that has them.

    Returns:
        The call with an answer of the predicted median length.
    """
    if option.client_side_draft is not None:
        draft = drafting or RouteEstimate()
        call = _predict_drafted(option, option.client_side_draft, estimate, request, draft)
        return call if exact_cost_usd is None else call._replace(exact_cost_usd=exact_cost_usd)
    n, tariff = request.length.median, option.tariff
    prompt_tokens = request.prompt_tokens * option.scale
    latency_s = estimate.latency_s(n)
    work_s = latency_s if estimate.engine_token_s is None else estimate.engine_token_s * n
    cost = None
    if tariff is not None and (work_s is not None or not tariff.second):
        cost = tariff.call + tariff.prompt * option.scale * request.prompt_tokens + tariff.output * n
        cost += tariff.second * (work_s or 0.0)
        if request.held:
            cached = option.scale * request.cached(option.route)
            cost += tariff.cache_dollars(prompt_tokens, cached, writes=request.writes)
    ttft_limit_s = estimate.ttft_limit_s  # None: no call has shown a time to the first token
    return CandidateCall(
        option.route,
        request.task,
        option.local,
        None,
        prompt_tokens,
        n,
        cost,
        exact_cost_usd,
        latency_s,
        _latency_limit_s(estimate, n),
        None if ttft_limit_s is None else estimate.ttft_s,
        ttft_limit_s,
        option.quality,
    )


def _latency_limit_s(estimate: RouteEstimate, tokens: int) -> float | None:
    """Return the seconds that the policy's share of answers of so many tokens keep, None where unknown."""
    if estimate.ttft_s is None or estimate.token_s is None:
        return None
    return estimate.limit_factor * estimate.ttft_s + estimate.limit_factor * estimate.token_s * tokens


def _predict_drafted(
    option: RouteOption,
    drafter: ClientSideDraft,
    target: RouteEstimate,
    request: RouteRequest,
    draft: RouteEstimate,
) -> CandidateCall:
    """Predict a call with a client-side draft: the whole answer drafted once, or round after round."""
    n, p = request.length.median, request.prompt_tokens * option.scale
    acceptance = option.accepted(request.task) or 0.0
    draft_tariff, target_tariff = drafter.tariff, option.tariff
    remote = drafter.strategy.kind == "remote"
    if remote:
        depth = drafter.strategy.depth or ROUND_TOKENS
        rounds = n / expected_tokens(acceptance, depth)
        sent, drafted, generated = rounds * (p + n / 2), rounds * depth, rounds
    else:
        rounds, depth, sent, drafted = 1.0, n, p, float(n)
        generated = n * (2.0 - acceptance)  # rejected tokens are generated again, and billed twice
    cost = None
    if (
        draft_tariff is not None
        and target_tariff is not None
        and not (draft_tariff.second or target_tariff.second)
    ):
        cost = (draft_tariff.call + target_tariff.call) * rounds
        cost += (draft_tariff.prompt + target_tariff.prompt) * sent
        cost += draft_tariff.output * drafted + target_tariff.output * generated
    call = CandidateCall(
        option.route,
        request.task,
        option.local,
        drafter.route,
        p,
        n,
        cost,
        None,
        None,
        None,
        None,
        None,
        option.quality,
    )
    draft_s = draft.latency_s(depth)
    if draft_s is None or target.ttft_s is None or target.token_s is None:
        return call
    latency_s = (draft_s + target.ttft_s) * rounds
    if not remote:
        latency_s += target.token_s * n * (1.0 - acceptance)
    limit_factor, ttft_s = max(draft.limit_factor, target.limit_factor), draft_s + target.ttft_s
    return call._replace(
        latency_s=latency_s,
        latency_limit_s=limit_factor * latency_s,
        ttft_s=ttft_s,
        ttft_limit_s=limit_factor * ttft_s,
    )


def token_sums(
    option: RouteOption, estimate: RouteEstimate, task: PromptTask, *, optimistic: bool = False
) -> CandidateCall:
    """Return a prediction as sums in tokens, for options without a client-side draft.

    Args:
        optimistic: predict the seconds that a call could well take once more is known about the route, 0
            where nothing is known.
    """
    ttft, token, limit_factor = estimate.ttft_s, estimate.token_s, estimate.limit_factor
    timed = ttft is not None and token is not None
    start, step = (ttft or 0.0, token or 0.0) if timed else (0.0, 0.0)
    cost = _cost_sum(option, estimate, start, step) if timed or not _needs_seconds(option, estimate) else None
    ttft_s: Any = ttft
    ttft_limit_s: Any = estimate.ttft_limit_s if timed else None
    if optimistic:
        times = estimate.optimistic_speedup
        start, step, timed = start / times, step / times, True
        ttft_s, ttft_limit_s = start, (ttft_limit_s or 0.0) / times
        if cost is None and option.tariff is not None:
            cost = TokenSum(0.0)
    values: tuple[Any, ...] = (
        option.route,
        task,
        option.local,
        None,
        TokenSum(0.0, option.scale),
        TokenSum(0.0, 0.0, 1.0),
        cost,
        cost,
        TokenSum(start, 0.0, step) if timed else None,
        TokenSum(limit_factor * start, 0.0, limit_factor * step) if timed else None,
        None if ttft_limit_s is None else ttft_s,
        ttft_limit_s,
        option.quality,
    )
    return CandidateCall._make(values)


def _needs_seconds(option: RouteOption, estimate: RouteEstimate) -> bool:
    """Return whether an option's cost follows from the seconds of a call."""
    return option.tariff is not None and bool(option.tariff.second) and estimate.engine_token_s is None


def _cost_sum(option: RouteOption, estimate: RouteEstimate, start: float, step: float) -> TokenSum | None:
    """Return the dollars of a call of ``start + step * completion_tokens`` seconds, None where unknown."""
    tariff, engine_token_s = option.tariff, estimate.engine_token_s
    if tariff is None:
        return None
    base, by_answer = tariff.call, tariff.output
    if tariff.second and engine_token_s is not None:
        by_answer += tariff.second * engine_token_s
    elif tariff.second:
        base, by_answer = base + tariff.second * start, by_answer + tariff.second * step
    return TokenSum(base, tariff.prompt * option.scale, by_answer)


def exact_cost(
    option: RouteOption,
    estimate: RouteEstimate,
    request: RouteRequest,
    tokens: int,
    drafting: RouteEstimate | None = None,
) -> Decimal | None:
    """Return the dollars of a call with an answer of ``tokens`` tokens, computed from the exact price."""
    if option.tariff is None:
        return None
    if option.client_side_draft is not None:
        length = AnswerLength(tokens, tokens, tokens)
        cost = predict_call(option, estimate, request._replace(length=length), drafting).cost_usd
        return None if cost is None else Decimal(repr(cost)).quantize(_NANO)
    engine_token_s = estimate.engine_token_s
    return option.tariff.dollars(
        round(request.prompt_tokens * option.scale),
        tokens,
        None if engine_token_s is None else engine_token_s * tokens,
        estimate.latency_s(tokens),
        round(request.cached(option.route) * option.scale),
        writes=request.writes,
    )


def option_depth(option: RouteOption, estimate: RouteEstimate, request: RouteRequest) -> int | None:
    """Return the tokens to draft at a time: as learned, else as the assumptions about the pair imply."""
    if option.client_side_draft is not None:
        return option.client_side_draft.strategy.depth
    if estimate.depth is not None:
        return estimate.depth
    alpha = option.accepted(request.task) if estimate.acceptance_rate is None else estimate.acceptance_rate
    ratio = next((each for task, each in option.cost_ratios if task == request.task), None)
    if alpha is None or ratio is None:
        return None
    return best_depth(alpha, ratio, task=request.task, prompt_tokens=request.prompt_tokens)
