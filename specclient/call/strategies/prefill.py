"""Turn the beginning of an answer, the caller's or a draft model's, into a request that continues it.

This is no verification: a target never refuses what it is made to begin with. A draft is therefore committed
only behind an accept rule (:attr:`specclient.types.strategy.Strategy.depth` tokens at most, of which the
draft was sure or with which the target agrees), and the record claims no acceptance.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Any

from specclient.call.strategies.context import (
    StrategyContext,
    answer_text,
    request_param,
    unsupported_parameter,
    without_idempotency_key,
)
from specclient.call.strategies.prediction import draft_request
from specclient.errors import BadRequestError, OpenAIError, UnsupportedParameterError
from specclient.providers.predictions import conflicting_params
from specclient.types.capabilities import Capabilities
from specclient.types.request import Request
from specclient.types.usage import Speculation

#: Tokens committed at most, where the caller sets no depth.
MAX_PREFILL_TOKENS = 32
#: Tokens of the target's short answer that a draft is compared with.
AGREEMENT_TOKENS = 8
#: What an answer begun by another model cannot have: its form is the target's from the first token on.
CONFLICTS = ("tools", "functions", "response_format", "logprobs", "n", "echo", "audio", "modalities")


def _last(fields: Mapping[str, Any], body: Mapping[str, Any]) -> Callable[[Request, str], Request]:
    """Return what puts a text last in a conversation, with fields on its turn and in the body."""

    def put(request: Request, text: str) -> Request:
        messages = list(request.params.get("messages") or ())
        if _is_assistant(messages):
            messages.pop()
        turn = {"role": "assistant", "content": text, **fields}
        options = replace(request.options, body={**request.options.body, **body})
        return replace(request, params={**request.params, "messages": [*messages, turn]}, options=options)

    return put


#: How each form of :data:`specclient.types.capabilities.Prefill` is asked for. A turn that simply stands
#: last: Anthropic's older models, llama.cpp, OpenRouter; ``prefix``: Mistral, DeepSeek;
#: ``continue_final_message``: vLLM (which refuses both flags true), SGLang, TabbyAPI.
PREFILL_FORMS: Mapping[str, Callable[[Request, str], Request]] = {
    "assistant": _last({}, {}),
    "prefix": _last({"prefix": True}, {}),
    "continue_final_message": _last({}, {"continue_final_message": True, "add_generation_prompt": False}),
}


async def whole(table: StrategyContext) -> Any:
    """Serve a request whole, continuing what the caller or a draft has begun."""
    request, prefix = await _begun(table)
    answer = await table.target.whole(request)
    if prefix:
        for choice in answer.choices:
            head = PrefixJoiner(prefix, repeated=_repeats(table))
            message = getattr(choice, "message", None)
            if message is None:
                choice.text = head.push(choice.text or "", last=True)
            elif isinstance(message.content, str) or message.content is None:
                message.content = head.push(message.content or "", last=True)
    return answer


async def stream(table: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Serve a request as a stream: the prefix first, then its continuation."""
    request, prefix = await _begun(table)
    chunks = await table.target.stream(request)
    table.outcome.http, table.outcome.dialect = chunks.http, chunks.dialect
    heads: dict[int, PrefixJoiner] = {}
    async with chunks:
        while True:
            try:
                batch = await chunks.next_batch()
            except StopAsyncIteration:
                return
            for chunk in batch if prefix else ():
                for choice in chunk.choices:
                    head = heads.setdefault(choice.index, PrefixJoiner(prefix, repeated=_repeats(table)))
                    _add(choice, head)
            yield batch


def continuation_request(
    request: Request, capabilities: Capabilities, text: str, tokens: int
) -> Request | None:
    """Return the request that goes on behind the text, of so many tokens, that an answer has come to.

    None where the model is not known to continue one, or not beside what else is asked.
    """
    if conflicting_params(request, CONFLICTS):
        return None
    messages = request.params.get("messages")
    put: Callable[[Request, str], Request] | None
    if request.operation == "completion":
        put = None if capabilities.prefill is False else _after_prompt
    else:
        put = PREFILL_FORMS.get(str(capabilities.prefill))
        if messages and _is_assistant(messages):  # the answer has gone on behind the caller's own beginning
            begun = messages[-1]["content"] if isinstance(messages[-1], Mapping) else messages[-1].content
            if not isinstance(begun, str):
                return None
            text = begun + text
    try:
        return None if put is None else _shortened(put(request, text), tokens)
    except UnsupportedParameterError:
        return None


def without_prefilled_turn(request: Request) -> Request:
    """Return a conversation without the beginning of an answer that the caller has put last."""
    messages = list(request.params.get("messages") or ())
    if not _is_assistant(messages):
        return request
    return replace(request, params={**request.params, "messages": messages[:-1]})


class PrefixJoiner:
    """Puts a prefix before a text, once, whether or not the server repeats it.

    Args:
        prefix: what the server was given.
        repeated: whether the server may send it again; else a text that begins alike is kept as it is.
    """

    def __init__(self, prefix: str, *, repeated: bool = True) -> None:
        self._prefix = prefix
        self._held: str | None = "" if repeated else None
        self._said = False

    def push(self, text: str, *, last: bool) -> str:
        """Return what goes out for a piece of text; ``last`` says that no more will come."""
        out = "" if self._said else self._prefix
        self._said = True
        if self._held is None:
            return out + text
        self._held += text
        if not last and len(self._held) < len(self._prefix) and self._prefix.startswith(self._held):
            return out
        out += without_prefix(self._held, self._prefix)
        self._held = None
        return out


def without_prefix(text: str, prefix: str) -> str:
    """Return what a server added to a prefix; some send the prefix again (llama.cpp: whole, not streamed)."""
    return text[len(prefix) :] if text.startswith(prefix) else text


def _add(choice: Any, head: PrefixJoiner) -> None:
    last = choice.finish_reason is not None
    delta = getattr(choice, "delta", None)
    if delta is None:
        choice.text = head.push(choice.text or "", last=last)
    elif isinstance(delta.content, str) or last:
        delta.content = head.push(delta.content or "", last=last)


def _repeats(table: StrategyContext) -> bool:
    """Tell whether a target may send again what it continues: completions and Anthropic's never do."""
    anthropic = table.endpoint is not None and table.endpoint.dialect == "anthropic"
    return table.request.operation == "chat" and not anthropic


async def _begun(table: StrategyContext) -> tuple[Request, str]:
    """Return the request that continues an answer, and its beginning; empty where there is none.

    Raises:
        UnsupportedParameterError: nothing begins the answer and no draft is named; or the target is not known
            to continue one, or not beside what else was asked.
    """
    request = table.request
    put = _form(table)
    if put is None:
        return request, ""
    table.outcome.speculation = Speculation(method="prefill")
    messages = list(request.params.get("messages") or ())
    if request.operation == "chat" and _is_assistant(messages):
        last = messages[-1]
        content = last.get("content") if isinstance(last, Mapping) else last.content
        if not isinstance(content, str):
            raise BadRequestError("the assistant's last turn must have text as its content to be continued")
        table.note("continues the caller's own beginning")
        return put(request, content), content
    if table.draft is None:
        raise unsupported_parameter(
            "strategy 'prefill' has nothing to begin with: end messages with an assistant's turn, or name a "
            "draft model: strategy=Strategy(kind='prefill', draft='local/demo', depth=16)",
            "strategy",
        )
    text, tokens = await _accepted(table)
    if not text:
        table.outcome.speculation = None
        return request, ""
    return _shortened(put(request, text), tokens), text


def _form(table: StrategyContext) -> Callable[[Request, str], Request] | None:
    """Return how the target is told to continue; None where it is not and the strategy may be dropped."""
    if found := conflicting_params(table.request, CONFLICTS):
        names = ", ".join(repr(name) for name in found)
        message, param = f"strategy 'prefill' cannot begin an answer with {names}", found[0]
    elif table.request.operation == "completion":
        if table.capabilities.prefill is not False:
            return _after_prompt
        message, param = f"{table.where} does not continue texts", "strategy"
    else:
        put = PREFILL_FORMS.get(str(table.capabilities.prefill))
        if put is not None:
            return put
        message = f"{table.where} is not known to continue an assistant's turn"
        if table.capabilities.prefill == "completions":
            message = f"{table.where} continues plain texts alone: use completions.create"
        param = "strategy"
    if table.drops:
        table.note(f"sent as it is: {message}")
        return None
    raise unsupported_parameter(f"{message}; leave the strategy out, or pass drop_params=True", param)


def _after_prompt(request: Request, text: str) -> Request:
    prompt = request.params.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise unsupported_parameter(
            "strategy 'prefill' takes one prompt, as text; make one call each", "prompt"
        )
    return replace(request, params={**request.params, "prompt": prompt + text})


def _limit(request: Request) -> int | None:
    found = request_param(request, "max_completion_tokens") or request_param(request, "max_tokens")
    if found is None and request.operation == "completion":
        return 16  # the API's own default
    return found if isinstance(found, int) else None


def _shortened(request: Request, tokens: int) -> Request:
    """Return a request whose answer is shorter by what is there already."""
    limit = _limit(request)
    if limit is None:
        return request
    name = "max_completion_tokens" if request_param(request, "max_completion_tokens") else "max_tokens"
    body = {key: value for key, value in request.options.body.items() if key != name}
    params = {**request.params, name: limit - tokens}
    return replace(request, params=params, options=replace(request.options, body=body))


async def _accepted(table: StrategyContext) -> tuple[str, int]:
    """Return the draft's beginning and its tokens if the rule accepts it, else nothing; note the reason."""
    cap = table.strategy.depth or MAX_PREFILL_TOKENS
    limit = _limit(table.request)
    if limit is not None:
        cap = min(cap, limit - 1)
    if cap < 1:
        table.note("sent as it is: an answer of one token has no beginning")
        return "", 0
    draft = table.strategy.draft or ""
    try:
        answer = await _draft(table, cap)
    except OpenAIError as error:
        table.note(f"sent as it is: the draft {draft} failed ({type(error).__name__})")
        return "", 0
    # Trailing blanks belong to the next token in most vocabularies, and Anthropic refuses them.
    text, tokens = answer_text(answer).rstrip(), answer.meta.usage.completion
    if not text or tokens is None or tokens > cap:
        table.note(f"sent as it is: the draft {draft} gave no beginning of at most {cap} tokens")
        return "", 0
    sure, how = _confidence(answer), "the draft's own mean probability"
    if sure is None:
        sure, how = await _agreement(table, text), f"agreement with {AGREEMENT_TOKENS} tokens of the target's"
    accepted = sure >= table.strategy.confidence
    verdict = "committed" if accepted else "refused"
    table.note(f"{verdict} {tokens} tokens of {draft}: {how} is {sure:.2f} of {table.strategy.confidence}")
    return (text, tokens) if accepted else ("", 0)


async def _draft(table: StrategyContext, cap: int) -> Any:
    """Return a draft's beginning, with its log-probabilities where it tells them."""
    assert table.draft is not None
    request = draft_request(table.request, table.strategy.draft or "", max_tokens=cap)
    wanted = True if request.operation == "chat" else 1
    try:
        return await table.draft.whole(replace(request, params={**request.params, "logprobs": wanted}))
    except BadRequestError:
        return await table.draft.whole(request)


def _confidence(answer: Any) -> float | None:
    """Return the geometric mean of the probabilities of an answer's tokens; None where it tells none."""
    told = answer.choices[0].logprobs
    if told is None:
        return None
    content = getattr(told, "content", None)
    values = getattr(told, "token_logprobs", None) if content is None else [each.logprob for each in content]
    logprobs = [value for value in values or () if isinstance(value, int | float) and value <= 0]
    if not logprobs or len(logprobs) != len(values or ()):
        return None
    return math.exp(sum(logprobs) / len(logprobs))


async def _agreement(table: StrategyContext, text: str) -> float:
    """Return how much of a short answer of the target's is also the draft's."""
    request = replace(table.request, stream=False)
    params = {k: v for k, v in request.params.items() if k not in ("max_completion_tokens", "stream_options")}
    asked = replace(
        request,
        params={**params, "max_tokens": AGREEMENT_TOKENS},
        options=without_idempotency_key(request.options),
    )
    probe = await table.target.whole(asked)
    said = answer_text(probe)
    compared = min(len(said), len(text))
    if not compared:
        return 0.0
    same = next((i for i in range(compared) if said[i] != text[i]), compared)
    return same / compared


def _is_assistant(messages: list[Any]) -> bool:
    if not messages:
        return False
    last = messages[-1]
    role = last.get("role") if isinstance(last, Mapping) else getattr(last, "role", None)
    return role == "assistant"
