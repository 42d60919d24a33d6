"""The most tokens of a call's answers, from its request.

The request limits an answer by ``max_tokens`` and similar parameters: the largest counts, for each of prompts
× ``n`` × ``best_of`` choices, plus the whole ``prediction``, whose rejected tokens are billed in addition. If
it sets no limit, :func:`assumed_limit` is reserved, and is sent as the limit of the call
(:mod:`specclient.call.answer_limit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specclient import tokens
from specclient.budgets.media import count_of
from specclient.types.request import PREDICTION_PARAMETERS, Request

__all__ = [
    "ANSWER_TOKENS",
    "COMPLETION_TOKENS",
    "LIMITS",
    "LIMIT_NAMES",
    "WITHOUT_ANSWER",
    "answer_bound",
    "assumed_limit",
    "choices_of",
    "fields_in",
    "is_limit",
    "plain_name",
]

#: Limit of an answer, in tokens, that is reserved for a request without one: a length that every current
#: chat model can write; for a text completion, the default of OpenAI's API.
ANSWER_TOKENS, COMPLETION_TOKENS = 4096, 16

#: Parameters that limit the answer in tokens of text, by operation; the first is the usual one.
LIMITS: Mapping[str, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completion": ("max_tokens",),
    "response": ("max_output_tokens",),
    "realtime": ("max_output_tokens", "max_response_output_tokens"),
}
#: All names of such limits at providers and servers, and of numbers of answers other than ``n`` and
#: ``best_of``; in lower case, without underscores. They raise a bound, but do not set one, because servers
#: that do not know them ignore them.
LIMIT_NAMES = frozenset(
    {"maxtokens", "maxcompletiontokens", "maxoutputtokens", "maxresponseoutputtokens", "maxnewtokens",
     "maxtokenstosample", "npredict", "numpredict"}
)  # fmt: skip
_CHOICE_NAMES = frozenset({"candidatecount", "numreturnsequences", "numgenerations", "numcompletions"})
#: Operations whose answer has no tokens.
WITHOUT_ANSWER = ("embedding", "moderation")

#: The longest answers of model families, in tokens (OpenAI, "Models"; Google, "Gemini models"). The limit of
#: other models is unknown: they may refuse a limit above the longest answer seen.
_LONGEST = (
    ("gpt-5", 128_000),
    ("gpt-4.1", 32_768),
    ("gpt-4o", 16_384),
    ("o1", 100_000),
    ("o3", 100_000),
    ("o4", 100_000),
    ("gemini-2.5", 65_536),
    ("gemini-3", 65_536),
)


def assumed_limit(operation: str, model: str, longest: int | None, room: int | None) -> int:
    """Return the limit of an answer whose request sets none, in tokens.

    It is :data:`ANSWER_TOKENS`, or more if the newest answers of the route were longer: twice the longest, up
    to the model's maximum; exactly the longest if the maximum is unknown.

    Args:
        operation: of the request.
        model: the model's name at its provider.
        longest: tokens of the route's longest answer; None before the first.
        room: tokens of the model's context that the prompt leaves; None where unknown.
    """
    if operation == "completion":
        return COMPLETION_TOKENS
    limit = max(ANSWER_TOKENS, longest or 0)
    if longest is not None and (most := _longest_answer(model)) is not None:
        limit = max(limit, min(2 * longest, most))
    return limit if room is None else max(min(limit, room), 1)


def _longest_answer(model: str) -> int | None:
    name = model.rpartition("/")[2]
    if name.startswith("claude-"):
        from specclient.providers.anthropic.params import default_max_tokens  # noqa: PLC0415 - Claude only

        return default_max_tokens(name)
    return next((most for beginning, most in _LONGEST if name.startswith(beginning)), None)


def answer_bound(request: Request, model: str) -> int | None:
    """Return the largest number of tokens of all answers in text, None if the request sets no limit."""
    operation = request.operation
    if operation in WITHOUT_ANSWER:
        return 0
    params = {**request.params, **request.options.body}
    least = 0 if operation == "completion" else 1  # for other operations servers take 0 as no limit
    own = [n for name in LIMITS[operation] if (n := count_of(params.get(name))) is not None and n >= least]
    if not own:
        return None
    predicted = sum(_prediction_tokens(params.get(name), model) for name in PREDICTION_PARAMETERS)
    return max(*own, other_limit(request)) * choices_of(request) + predicted


def other_limit(request: Request) -> int:
    """Return the largest limit under any known name, also in fields outside the API; 0 without any."""
    top = max((count_of(value) or 0 for name, value in request.params.items() if is_limit(name)), default=0)
    return max(top, *_counts(request.options.body, LIMIT_NAMES), 0)


def choices_of(request: Request) -> int:
    """Return the number of answers that are generated: prompts × ``n`` × ``best_of``."""
    params, times = {**request.params, **request.options.body}, 1
    for name in ("n", "best_of"):
        times *= max(count_of(params.get(name)) or 1, 1)
    times *= max(_counts(request.options.body, _CHOICE_NAMES), default=1)
    prompts = params.get("prompt") if request.operation == "completion" else None
    if isinstance(prompts, list | tuple) and not all(isinstance(each, int) for each in prompts):
        times *= len(prompts)
    return times


def is_limit(name: object) -> bool:
    """Return whether a field limits the answer at any provider, by its name."""
    return isinstance(name, str) and plain_name(name) in LIMIT_NAMES


def plain_name(name: str) -> str:
    """Return a field's name in lower case, without underscores."""
    return name.replace("_", "").lower()


def fields_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the names and values of all fields anywhere in a value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):  # most are, and the check for a mapping takes long
            continue
        if isinstance(each, Mapping):
            yield from each.items()
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)


def _counts(value: Any, names: frozenset[str]) -> Iterator[int]:
    """Yield the positive numbers under names anywhere in a value."""
    for name, inner in fields_in(value):
        if isinstance(name, str) and plain_name(name) in names and (count := count_of(inner) or 0) > 0:
            yield count


def _prediction_tokens(prediction: Any, model: str) -> int:
    """Return the tokens of a prediction, all of which may be rejected."""
    if isinstance(prediction, str):
        return tokens.count_text(prediction, model).tokens
    if not isinstance(prediction, Mapping):
        return 0
    message = {"role": "assistant", "content": prediction.get("content")}
    return tokens.count_messages([message], model).tokens
