"""Turn a predicted answer, the caller's or a draft model's, into a request whose target verifies it.

https://platform.openai.com/docs/guides/predicted-outputs; Azure, Mistral, Cerebras and OpenRouter take the
same field, Fireworks takes text or token ids as ``speculation``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from specclient.call.strategies.context import (
    StrategyContext,
    answer_text,
    request_param,
    unsupported_parameter,
)
from specclient.call.strategies.cost_benefit import SECOND_USD, worth_sending
from specclient.errors import OpenAIError
from specclient.providers.predictions import OPENAI_CONFLICTS, conflicting_params, refusal
from specclient.types.call import Call
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Policy
from specclient.types.usage import Speculation

_OPENAIS = frozenset({"openai", "azure"})
#: What a draft model is asked with of the caller's parameters; the rest shapes an answer's form alone.
_SHARED = ("messages", "prompt", "temperature", "top_p", "seed", "stop", "max_tokens")


async def whole(table: StrategyContext) -> Any:
    """Serve a request whole, with its prediction where that is worth sending."""
    request, predicted = await with_prediction(table)
    table.outcome.unaltered = True
    answer = await table.target.whole(request)
    if predicted:
        _learn(table, answer.meta)
    return answer


async def stream(table: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Serve a request as a stream, with its prediction where that is worth sending."""
    request, predicted = await with_prediction(table)
    chunks = await table.target.stream(request)
    table.outcome.http, table.outcome.dialect = chunks.http, chunks.dialect
    async with chunks:
        while True:
            try:
                batch = await chunks.next_batch()
            except StopAsyncIteration:
                break
            yield batch
    if predicted:
        _learn(table, chunks.meta)


async def with_prediction(table: StrategyContext) -> tuple[Request, bool]:
    """Return the request as it is sent, and whether a prediction goes with it.

    Raises:
        UnsupportedParameterError: neither a prediction nor a draft was given, or the target takes none, or
            not beside what else was asked for.
    """
    request = table.request
    own = request_param(request, "prediction"), request_param(request, "speculation")
    if own == (None, None) and table.draft is None:
        raise unsupported_parameter(
            "strategy 'prediction' has nothing to predict with: pass prediction={'type': 'content', "
            "'content': …}, or name a draft model: strategy=Strategy(kind='prediction', draft='local/demo')",
            "strategy",
        )
    field = _field(table)
    if field is None or not _without_conflict(table):
        return _without(request), False
    if own[1] is not None:
        table.note("speculation given by the caller")
        return request, True
    if own[0] is not None:
        text = _text(own[0])
        weighed = table.strategy.kind == "auto" and isinstance(text, str)
        if weighed and not _is_worth(table, "the caller's prediction", len(text) // 4):
            return _without(request), False
        table.note("prediction given by the caller")
        return _with(request, field, text), True
    text = await _drafted(table)
    return (request, False) if text is None else (_with(request, field, text), True)


def can_predict(table: StrategyContext) -> bool:
    """Tell whether the target is known to honour a prediction with this request."""
    return _known(table) is True and not conflicting_params(table.request, _conflicting(table))


def _conflicting(table: StrategyContext) -> tuple[str, ...]:
    known = table.capabilities.prediction_conflicts
    openai = table.endpoint is not None and table.endpoint.name in _OPENAIS
    return known or (OPENAI_CONFLICTS if openai else ())


def _known(table: StrategyContext) -> bool | None:
    """Return whether the target honours a prediction: no, yes, or unknown."""
    known = table.capabilities
    if table.request.operation == "completion":
        return True if table.endpoint is None else bool(known.speculation)
    models = known.prediction_models
    if known.prediction and models and not table.model.startswith(models):
        return False
    return known.prediction


def _field(table: StrategyContext) -> str | None:
    """Return the parameter that carries a prediction; None where there is none and it may be left out."""
    if _known(table) is not False:
        chat = table.request.operation == "chat"
        return "prediction" if chat or table.endpoint is None else "speculation"
    models = table.capabilities.prediction_models
    allowed = f"models of it that do begin with {', '.join(models)}; " if models else ""
    what = f"{table.where} does not verify predictions for {table.model!r} ({table.request.operation})"
    if table.drops:
        table.note(f"sent without a prediction: {what}")
        return None
    raise unsupported_parameter(
        f"{what}: {allowed}leave the strategy out, name another model, or pass drop_params=True", "prediction"
    )


def _without_conflict(table: StrategyContext) -> bool:
    """Tell whether nothing stands against a prediction; what the caller asked for wins where it may."""
    found = conflicting_params(table.request, _conflicting(table))
    if not found:
        return True
    names = ", ".join(repr(name) for name in found)
    if table.drops:
        table.note(f"sent without the prediction, which {table.where} refuses beside {names}")
        return False
    raise refusal(table.where, found)


async def _drafted(table: StrategyContext) -> str | None:
    """Return a draft model's answer if it is worth sending, else None, with the reason noted."""
    assert table.draft is not None
    draft = table.strategy.draft or ""
    try:
        answer = await table.draft.whole(draft_request(table.request, draft))
    except OpenAIError as error:
        table.note(f"sent without a prediction: the draft {draft} failed ({type(error).__name__})")
        return None
    text = answer_text(answer)
    if not text:
        table.note(f"sent without a prediction: the draft {draft} said nothing")
        return None
    tokens = answer.meta.usage.completion or len(text) // 4
    limit = request_param(table.request, "max_completion_tokens") or request_param(
        table.request, "max_tokens"
    )
    if isinstance(limit, int) and tokens > limit:  # no more can be accepted, and the rest would be billed
        text, tokens = text[: len(text) * limit // tokens], limit
    return text if _is_worth(table, f"the answer of {draft}", tokens) else None


def _is_worth(table: StrategyContext, what: str, tokens: int) -> bool:
    """Decide whether a prediction of so many tokens is sent, and note why."""
    worth = worth_sending(
        tokens,
        acceptance=table.history.acceptance(_pair(table)),
        output_price=table.price(1),
        rejected_billed=table.capabilities.rejected_billed,
        second_usd=_second(table.request.policy),
    )
    table.note(f"{'sent with' if worth.send else 'sent without'} {what}: {worth.reason}")
    return worth.send


def draft_request(request: Request, draft: str, **changed: Any) -> Request:
    """Return what a draft model is asked: the same conversation, whole, as text."""
    params = {name: request.params[name] for name in _SHARED if request.params.get(name) is not None}
    limit = request_param(request, "max_completion_tokens")
    if limit is not None:
        params["max_tokens"] = limit
    own = request.options
    options = PerCallOptions(
        timeout=own.timeout,
        deadline_s=own.deadline_s,
        drop_params=True,
        tags=own.tags,
        session=own.session,
    )
    return Request(request.method, draft, {**params, **changed}, options=options)


def _second(policy: Policy | str | None) -> Decimal | None:
    """Return what a second is worth to a caller with this policy."""
    if not isinstance(policy, Policy):
        return SECOND_USD
    return Decimal(0) if policy.minimize == "cost" else None


def _pair(table: StrategyContext) -> tuple[str, str]:
    where = "local" if table.endpoint is None else table.endpoint.name
    return table.strategy.draft or "", f"{where}/{table.model}"


def _with(request: Request, field: str, text: Any) -> Request:
    """Return a request with a prediction in it."""
    request = _without(request)
    if field == "speculation":
        return replace(request, options=replace(request.options, body={**request.options.body, field: text}))
    content = text if isinstance(text, Mapping) else {"type": "content", "content": text}
    return replace(request, params={**request.params, field: content})


def _without(request: Request) -> Request:
    """Return a request without any prediction."""
    names = ("prediction", "speculation")
    params = {name: value for name, value in request.params.items() if name not in names}
    body = {name: value for name, value in request.options.body.items() if name not in names}
    return replace(request, params=params, options=replace(request.options, body=body))


def _text(prediction: Any) -> Any:
    """Return the text of a prediction in any of its forms; what is none of them as it is."""
    content = prediction.get("content") if isinstance(prediction, Mapping) else prediction
    if isinstance(content, list | tuple):
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    return content if isinstance(content, str) else prediction


def _learn(table: StrategyContext, call: Call) -> None:
    """Keep what became of a prediction; where the target does not tell, only that there was one."""
    told = call.speculation
    table.outcome.speculation = told or Speculation(method="prediction")
    if told is None or told.predicted_accepted is None or told.predicted_rejected is None:
        return
    if told.predicted_accepted + told.predicted_rejected:
        table.history.note(_pair(table), told.predicted_accepted, told.predicted_rejected)
