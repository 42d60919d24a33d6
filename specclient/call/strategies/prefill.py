"""Strategy ``prefill``: the target continues the beginning of an answer, the caller's or a draft model's.

The target does not verify the beginning; it continues any text. A draft is therefore committed only if it
has at most :attr:`specclient.types.strategy.Strategy.depth` tokens, and either the draft model is confident
of them or the target's own first tokens agree. The record states no acceptance rate.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from specclient.call.answer_fields import answer_text
from specclient.call.request_params import (
    draft_request,
    without_idempotency_key,
)
from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.continuation import (
    CONFLICTS,
    PREFILL_FORMS,
    ContinueText,
    PrefixJoiner,
    content_of,
    continue_prompt,
    ends_with_assistant,
    reduce_token_limit,
    token_limit,
)
from specclient.errors import BadRequestError, OpenAIError
from specclient.providers.predictions import conflicting_params
from specclient.types.request import Request
from specclient.types.usage import Speculation

#: The most tokens that are committed, where the caller sets no depth.
MAX_PREFILL_TOKENS = 32
#: Tokens of the target's short answer that a draft is compared with.
AGREEMENT_TOKENS = 8


async def complete(context: StrategyContext) -> Any:
    """Return the complete answer: the prefix and its continuation."""
    request, prefix = await _with_prefix(context)
    answer = await context.target.complete(request)
    if prefix:
        for choice in answer.choices:
            joiner = PrefixJoiner(prefix, may_repeat=_may_repeat(context))
            message = getattr(choice, "message", None)
            if message is None:
                choice.text = joiner.push(choice.text or "", last=True)
            elif isinstance(message.content, str) or message.content is None:
                message.content = joiner.push(message.content or "", last=True)
    return answer


async def stream(context: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Yield the answer's chunks: the prefix, then its continuation."""
    request, prefix = await _with_prefix(context)
    chunks = await context.target.stream(request)
    context.outcome.http, context.outcome.dialect = chunks.http, chunks.dialect
    joiners: dict[int, PrefixJoiner] = {}
    async with chunks:
        while True:
            try:
                batch = await chunks.next_batch()
            except StopAsyncIteration:
                return
            for chunk in batch if prefix else ():
                for choice in chunk.choices:
                    joiner = joiners.setdefault(
                        choice.index, PrefixJoiner(prefix, may_repeat=_may_repeat(context))
                    )
                    _join(choice, joiner)
            yield batch


def _join(choice: Any, joiner: PrefixJoiner) -> None:
    last = choice.finish_reason is not None
    delta = getattr(choice, "delta", None)
    if delta is None:
        choice.text = joiner.push(choice.text or "", last=last)
    elif isinstance(delta.content, str) or last:
        delta.content = joiner.push(delta.content or "", last=last)


def _may_repeat(context: StrategyContext) -> bool:
    """Return whether a target may repeat the text it continues: chats may, except Anthropic's."""
    is_anthropic = context.endpoint is not None and context.endpoint.dialect == "anthropic"
    return context.request.operation == "chat" and not is_anthropic


async def _with_prefix(context: StrategyContext) -> tuple[Request, str]:
    """Return the request to send, and the beginning that it continues, which may be empty.

    Raises:
        UnsupportedParameterError: the messages do not end with an assistant's turn and no draft is named; the
            target is not known to continue answers; or the request has conflicting parameters.
    """
    request = context.request
    continue_text = _continue_function(context)
    if continue_text is None:
        return request, ""
    context.outcome.speculation = Speculation(method="prefill")
    messages = list(request.params.get("messages") or ())
    if request.operation == "chat" and ends_with_assistant(messages):
        content = content_of(messages[-1])
        if not isinstance(content, str):
            raise BadRequestError("the assistant's last turn must have text as its content to be continued")
        context.note("continues the caller's own beginning")
        return continue_text(request, content), content
    if context.draft is None:
        raise unsupported_parameter(
            "strategy 'prefill' needs the beginning of an answer: end messages with an assistant's turn, or "
            "name a draft model: strategy=Strategy(kind='prefill', draft='local/demo', depth=16)",
            "strategy",
        )
    text, tokens = await _accepted_draft(context)
    if not text:
        context.outcome.speculation = None
        return request, ""
    return reduce_token_limit(continue_text(request, text), tokens), text


def _continue_function(context: StrategyContext) -> ContinueText | None:
    """Return the function that makes the target continue a text; None where the strategy is dropped.

    Raises:
        UnsupportedParameterError: the target cannot continue this answer, and parameters may not be dropped.
    """
    if conflicts := conflicting_params(context.request, CONFLICTS):
        names = ", ".join(repr(name) for name in conflicts)
        message, param = f"strategy 'prefill' does not support {names}", conflicts[0]
    elif context.request.operation == "completion":
        if context.capabilities.prefill is not False:
            return continue_prompt
        message, param = f"{context.target_label} does not continue a text", "strategy"
    else:
        continue_text = PREFILL_FORMS.get(str(context.capabilities.prefill))
        if continue_text is not None:
            return continue_text
        message = f"{context.target_label} is not known to continue an assistant's turn"
        if context.capabilities.prefill == "completions":
            message = f"{context.target_label} continues only plain texts: use completions.create"
        param = "strategy"
    if context.drops_params:
        context.note(f"sent without a beginning: {message}")
        return None
    raise unsupported_parameter(f"{message}; leave the strategy out, or pass drop_params=True", param)


async def _accepted_draft(context: StrategyContext) -> tuple[str, int]:
    """Return the draft's text and token count if the rule accepts it, else ``("", 0)``."""
    max_draft = context.strategy.depth or MAX_PREFILL_TOKENS
    limit = token_limit(context.request)
    if limit is not None:
        max_draft = min(max_draft, limit - 1)
    if max_draft < 1:
        context.note("sent without a beginning: an answer of one token has no room for it")
        return "", 0
    draft = context.strategy.draft or ""
    try:
        answer = await _draft(context, max_draft)
    except OpenAIError as error:
        context.note(f"sent without a beginning: the draft {draft} failed ({type(error).__name__})")
        return "", 0
    # In most vocabularies a trailing space belongs to the next token, and Anthropic refuses it.
    text, tokens = answer_text(answer).rstrip(), answer.meta.usage.completion
    if not text or tokens is None or tokens > max_draft:
        context.note(
            f"sent without a beginning: the draft {draft} returned no text of at most {max_draft} tokens"
        )
        return "", 0
    required = context.strategy.confidence
    confidence, measure = _confidence(answer), "the draft's mean probability"
    if confidence is None:
        confidence = await _agreement(context, text)
        measure = f"agreement with the target's first {AGREEMENT_TOKENS} tokens"
    accepted = confidence >= required
    verdict = "committed" if accepted else "rejected"
    context.note(f"{verdict} {tokens} tokens of {draft}: {measure} is {confidence:.2f}; required {required}")
    return (text, tokens) if accepted else ("", 0)


async def _draft(context: StrategyContext, max_tokens: int) -> Any:
    """Return a draft model's short answer, with log-probabilities where its server supports them."""
    assert context.draft is not None
    request = draft_request(context.request, context.strategy.draft or "", max_tokens=max_tokens)
    logprobs = True if request.operation == "chat" else 1
    try:
        return await context.draft.complete(replace(request, params={**request.params, "logprobs": logprobs}))
    except BadRequestError:
        return await context.draft.complete(request)


def _confidence(answer: Any) -> float | None:
    """Return the geometric mean of an answer's token probabilities; None where it reports none."""
    reported = answer.choices[0].logprobs
    if reported is None:
        return None
    content = getattr(reported, "content", None)
    if content is None:
        values = getattr(reported, "token_logprobs", None)
    else:
        values = [each.logprob for each in content]
    logprobs = [value for value in values or () if isinstance(value, int | float) and value <= 0]
    if not logprobs or len(logprobs) != len(values or ()):
        return None
    return math.exp(sum(logprobs) / len(logprobs))


async def _agreement(context: StrategyContext, text: str) -> float:
    """Return the share of characters in which the target's short answer begins like the draft, 0 to 1."""
    request = replace(context.request, stream=False)
    params = {k: v for k, v in request.params.items() if k not in ("max_completion_tokens", "stream_options")}
    probe = replace(
        request,
        params={**params, "max_tokens": AGREEMENT_TOKENS},
        options=without_idempotency_key(request.options),
    )
    answer = answer_text(await context.target.complete(probe))
    compared = min(len(answer), len(text))
    if not compared:
        return 0.0
    same = next((i for i in range(compared) if answer[i] != text[i]), compared)
    return same / compared
