"""Strategy ``prediction``: sends a predicted answer, the caller's or a draft model's, to be verified.

https://platform.openai.com/docs/guides/predicted-outputs; Azure, Mistral, Cerebras and OpenRouter take the
same field; Fireworks takes text or token ids as ``speculation``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from specclient.call.answer_fields import answer_text
from specclient.call.request_params import draft_request, request_param
from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.cost_benefit import SECOND_USD, worth_sending
from specclient.errors import OpenAIError
from specclient.providers.openai.quirks import NO_QUIRKS
from specclient.providers.predictions import conflicting_params, refusal
from specclient.providers.presets.hosted import OPENAI_CONFLICTS
from specclient.types.call import Call
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient.types.usage import Speculation

#: Providers to which OpenAI's documented conflicts apply.
_OPENAI_PROVIDERS = frozenset({"openai", "azure"})


async def complete(context: StrategyContext) -> Any:
    """Return the complete answer; a prediction is sent if it is worth its cost."""
    request, has_prediction = await with_prediction(context)
    context.outcome.passed_through = True
    answer = await context.target.complete(request)
    if has_prediction:
        _note_outcome(context, answer.meta)
    return answer


async def stream(context: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Yield the answer's chunks; a prediction is sent if it is worth its cost."""
    request, has_prediction = await with_prediction(context)
    chunks = await context.target.stream(request)
    context.outcome.http, context.outcome.dialect = chunks.http, chunks.dialect
    async with chunks:
        while True:
            try:
                batch = await chunks.next_batch()
            except StopAsyncIteration:
                break
            yield batch
    if has_prediction:
        _note_outcome(context, chunks.meta)


async def with_prediction(context: StrategyContext) -> tuple[Request, bool]:
    """Return the request to send, and whether it contains a prediction.

    Raises:
        UnsupportedParameterError: neither a prediction nor a draft is given; the target accepts no
            predictions; or the request has parameters that conflict with one.
    """
    request = context.request
    predicted, speculation = (request_param(request, name) for name in ("prediction", "speculation"))
    if predicted is None and speculation is None and context.draft is None:
        raise unsupported_parameter(
            "strategy 'prediction' needs a prediction: pass prediction={'type': 'content', "
            "'content': …}, or name a draft model: strategy=Strategy(kind='prediction', draft='local/demo')",
            "strategy",
        )
    field = _field(context)
    if field is None or not _has_no_conflict(context):
        return _without(request), False
    if speculation is not None:
        context.note("speculation given by the caller")
        return request, True
    if predicted is not None:
        text = _prediction_text(predicted)
        is_optional = context.strategy.kind == "auto" and isinstance(text, str)
        if is_optional and not _is_worth(context, "the caller's prediction", len(text) // 4):
            return _without(request), False
        context.note("prediction given by the caller")
        return _with(request, field, text), True
    text = await _draft(context)
    return (request, False) if text is None else (_with(request, field, text), True)


def can_predict(context: StrategyContext) -> bool:
    """Return whether the target is known to verify a prediction with this request."""
    return _honours_predictions(context) is True and not _conflicts(context)


def _conflicts(context: StrategyContext) -> list[str]:
    """Return the request's parameters that the target refuses together with a prediction."""
    is_openai = context.endpoint is not None and context.endpoint.name in _OPENAI_PROVIDERS
    names = context.capabilities.prediction_conflicts or (OPENAI_CONFLICTS if is_openai else ())
    quirks = NO_QUIRKS if context.endpoint is None else context.endpoint.quirks
    return conflicting_params(context.request, names, quirks)


def _honours_predictions(context: StrategyContext) -> bool | None:
    """Return whether the target verifies predictions; None where that is unknown."""
    capabilities = context.capabilities
    if context.request.operation == "completion":
        return True if context.endpoint is None else bool(capabilities.speculation)
    models = capabilities.prediction_models
    if capabilities.prediction and models and not context.model.startswith(models):
        return False
    return capabilities.prediction


def _field(context: StrategyContext) -> str | None:
    """Return the parameter that holds a prediction; None where the prediction is dropped.

    Raises:
        UnsupportedParameterError: the target verifies no predictions, and parameters may not be dropped.
    """
    if _honours_predictions(context) is not False:
        is_chat = context.request.operation == "chat"
        return "prediction" if is_chat or context.endpoint is None else "speculation"
    models = context.capabilities.prediction_models
    allowed = f"supported models begin with {', '.join(models)}; " if models else ""
    problem = (
        f"{context.target_label} does not verify predictions for {context.model!r} "
        f"({context.request.operation})"
    )
    if context.drops_params:
        context.note(f"sent without a prediction: {problem}")
        return None
    raise unsupported_parameter(
        f"{problem}: {allowed}leave the strategy out, name another model, or pass drop_params=True",
        "prediction",
    )


def _has_no_conflict(context: StrategyContext) -> bool:
    """Return whether no parameter conflicts with a prediction; ``drop_params`` drops the prediction.

    Raises:
        UnsupportedParameterError: a parameter conflicts, and parameters may not be dropped.
    """
    conflicts = _conflicts(context)
    if not conflicts:
        return True
    names = ", ".join(repr(name) for name in conflicts)
    if context.drops_params:
        context.note(
            f"sent without the prediction, which {context.target_label} refuses together with {names}"
        )
        return False
    raise refusal(context.target_label, conflicts)


async def _draft(context: StrategyContext) -> str | None:
    """Return a draft model's answer; None where it is not worth sending, with the reason noted."""
    assert context.draft is not None
    draft = context.strategy.draft or ""
    try:
        answer = await context.draft.complete(draft_request(context.request, draft))
    except OpenAIError as error:
        context.note(f"sent without a prediction: the draft {draft} failed ({type(error).__name__})")
        return None
    text = answer_text(answer)
    if not text:
        context.note(f"sent without a prediction: the draft {draft} returned no text")
        return None
    tokens = answer.meta.usage.completion or len(text) // 4
    limit = request_param(context.request, "max_completion_tokens") or request_param(
        context.request, "max_tokens"
    )
    if isinstance(limit, int) and tokens > limit:  # tokens beyond the limit can only be rejected, and billed
        text, tokens = text[: len(text) * limit // tokens], limit
    return text if _is_worth(context, f"the answer of {draft}", tokens) else None


def _is_worth(context: StrategyContext, source: str, tokens: int) -> bool:
    """Decide whether a prediction of this many tokens is sent, and note why."""
    value = worth_sending(
        tokens,
        acceptance=context.history.acceptance(_pair(context)),
        output_price=context.generation_price(1),
        rejected_billed=context.capabilities.rejected_billed,
        second_usd=_second_usd(context.request.policy),
    )
    context.note(f"{'sent with' if value.send else 'sent without'} {source}: {value.reason}")
    return value.send


def _second_usd(policy: Policy | str | None) -> Decimal | None:
    """Return the dollars that a saved second is worth under a policy; None where only latency matters."""
    if not isinstance(policy, Policy):
        return SECOND_USD
    return Decimal(0) if policy.minimize == "cost" else None


def _pair(context: StrategyContext) -> tuple[str, str]:
    provider = "local" if context.endpoint is None else context.endpoint.name
    return context.strategy.draft or "", f"{provider}/{context.model}"


def _with(request: Request, field: str, text: Any) -> Request:
    """Return a request with a prediction."""
    request = _without(request)
    if field == "speculation":
        return replace(request, options=replace(request.options, body={**request.options.body, field: text}))
    content = text if isinstance(text, Mapping) else {"type": "content", "content": text}
    return replace(request, params={**request.params, field: content})


def _without(request: Request) -> Request:
    """Return a request without a prediction."""
    names = ("prediction", "speculation")
    params = {name: value for name, value in request.params.items() if name not in names}
    body = {name: value for name, value in request.options.body.items() if name not in names}
    return replace(request, params=params, options=replace(request.options, body=body))


def _prediction_text(prediction: Any) -> Any:
    """Return the text of a prediction in any of its forms; another value is returned unchanged."""
    content = prediction.get("content") if isinstance(prediction, Mapping) else prediction
    if isinstance(content, list | tuple):
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    return content if isinstance(content, str) else prediction


def _note_outcome(context: StrategyContext, call: Call) -> None:
    """Record how much of a prediction was accepted, where the target reports it."""
    reported = call.speculation
    context.outcome.speculation = reported or Speculation(method="prediction")
    if reported is None or reported.predicted_accepted is None or reported.predicted_rejected is None:
        return
    if reported.predicted_accepted + reported.predicted_rejected:
        context.history.note(_pair(context), reported.predicted_accepted, reported.predicted_rejected)
