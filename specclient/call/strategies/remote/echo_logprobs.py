"""Turn scores of echoed prompts, which tell alternatives by text if at all, into what is certain of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specclient.call.strategies.remote.scoring import (
    ScoredDraftToken,
    ScoringRequest,
    ScoringResult,
    ScoringToken,
    are_ids,
    choice_of,
    completion,
    field_of,
    generate,
    text_in,
    text_or_none,
    unverifiable_answer,
)
from specclient.providers.endpoint import Endpoint
from specclient.types.request import Request

#: Room for rounding where probabilities are compared.
_EPSILON = 1e-4
#: Alternatives asked for where they are told by text: the most that every server of the kind gives.
_ALTERNATIVES = 5


# TGI: text alone, and no likelier alternatives; a token is known to be greedy if it holds more than half


def ask_tgi(request: Request, endpoint: Endpoint | None, ask: ScoringRequest) -> Request:
    parameters: dict[str, Any] = {
        "details": True, "decoder_input_details": True, "max_new_tokens": ask.count, "do_sample": False,
    }  # fmt: skip
    if ask.stop:
        parameters["stop"] = list(ask.stop)
    return generate(request, endpoint, {"inputs": ask.text + ask.draft_text, "parameters": parameters})


def read_tgi(answer: Any, ask: ScoringRequest) -> ScoringResult:
    details = field_of(answer, "details")
    prefill, tokens = field_of(details, "prefill"), field_of(details, "tokens")
    if not prefill or tokens is None:
        raise unverifiable_answer("it has no details with prefill and tokens")
    rows = [
        _EchoedToken(
            field_of(r, "id"), text_or_none(field_of(r, "text")), _judged(field_of(r, "logprob"), ())
        )
        for r in prefill
    ]
    new = tuple(ScoringToken(field_of(row, "id"), text_or_none(field_of(row, "text"))) for row in tokens)
    stopped = field_of(details, "finish_reason") in ("eos_token", "stop_sequence")
    spots, prompt = _aligned(rows, ask)
    return ScoringResult(spots, new, str(field_of(answer, "generated_text") or ""), stopped, prompt)


# Echoed prompts: Fireworks sends ids and has the last N tokens echoed; Together takes text and echoes all


def ask_echo_last(request: Request, _: Endpoint | None, ask: ScoringRequest) -> Request:
    if ask.prompt is None:
        return completion(
            request, ask, ask.text, {"return_token_ids": True}, echo=True, logprobs=_ALTERNATIVES
        )
    body: dict[str, Any] = {"return_token_ids": True}
    if ask.draft:
        body["echo_last"] = len(ask.draft)
    return completion(request, ask, ask.ids, body, logprobs=_ALTERNATIVES)


def read_echo_last(answer: Any, ask: ScoringRequest) -> ScoringResult:
    choice = choice_of(answer)
    rows = _legacy(field_of(choice, "logprobs"))
    echoed = len(ask.draft)
    if ask.prompt is None:
        echoed = len(rows) - _completion_tokens(answer, ask)
    new = tuple(ScoringToken(row.id, row.text) for row in rows[echoed:])
    if len(rows) < echoed:
        raise unverifiable_answer(f"its logprobs have {len(rows)} tokens; {echoed} were to be echoed")
    spots: list[ScoredDraftToken] = []
    for token, row in zip(ask.draft, rows[:echoed], strict=False):
        if row.id != token:
            raise unverifiable_answer(f"its logprobs tell of token {row.id} where {token} was sent")
        spots.append(row.spot())
    prompt = tuple(row.id for row in rows[:echoed]) if ask.prompt is None else None
    text = _new_text(choice, ask.text if ask.prompt is None else ask.draft_text, new)
    return ScoringResult(tuple(spots), new, text, choice.finish_reason == "stop", prompt)


def ask_echo(request: Request, _: Endpoint | None, ask: ScoringRequest) -> Request:
    return completion(request, ask, ask.text + ask.draft_text, {}, echo=True, logprobs=_ALTERNATIVES)


def read_echo(answer: Any, ask: ScoringRequest) -> ScoringResult:
    choice = choice_of(answer)
    own = _legacy(field_of(choice, "logprobs"))
    prompts = field_of(answer, "prompt")
    if prompts:  # Together: beside the choices, which hold the new tokens alone
        echoed, new_rows = _legacy(field_of(prompts[0], "logprobs")), own
    else:
        cut = len(own) - _completion_tokens(answer, ask)
        echoed, new_rows = own[:cut], own[cut:]
    if not echoed:
        raise unverifiable_answer("it does not echo the prompt")
    spots, prompt = _aligned(echoed, ask)
    new = tuple(ScoringToken(row.id, row.text) for row in new_rows)
    text = _new_text(choice, ask.text + ask.draft_text, new)
    return ScoringResult(spots, new, text, choice.finish_reason == "stop", prompt)


class _EchoedToken(NamedTuple):
    """A scored token, and whether it is the greedy choice; None where that is not certain."""

    id: int
    text: str | None
    greedy: bool | None

    def spot(self) -> ScoredDraftToken:
        """Return it as part of a draft; what would be in its place is not told by id."""
        return ScoredDraftToken(ScoringToken(self.id, self.text), self.greedy)


def _judged(own: Any, others: Sequence[float]) -> bool | None:
    """Tell whether a token is the greedy choice, from its log-probability and those of some others.

    Alternatives are told by text, and two tokens may have the same (``▁the`` and ``the``, parts of
    characters), so that one hides the other. It is certain only if the token is likelier than every other
    that is told, and than all that is left untold, together.
    """
    if isinstance(own, bool) or not isinstance(own, int | float):
        return None
    mine, told = math.exp(min(own, 0.0)), [math.exp(min(other, 0.0)) for other in others]
    best = max(told, default=0.0)
    if best > mine + _EPSILON:
        return False
    untold = 1.0 - mine - sum(told)
    return True if mine > best + _EPSILON and mine > untold + _EPSILON else None


def _legacy(logprobs: Any) -> list[_EchoedToken]:
    """Read OpenAI's legacy arrays, where they name the ids too."""
    ids, texts = field_of(logprobs, "token_ids"), field_of(logprobs, "tokens")
    values, tops = field_of(logprobs, "token_logprobs"), field_of(logprobs, "top_logprobs")
    if not are_ids(ids) or not isinstance(values, Sequence) or len(values) != len(ids):
        raise unverifiable_answer("its logprobs have no token_ids and token_logprobs")
    rows = []
    for i, token in enumerate(ids):
        top = tops[i] if isinstance(tops, Sequence) and i < len(tops) else None
        text = texts[i] if isinstance(texts, Sequence) and i < len(texts) else None
        told = top if isinstance(top, Mapping) else {}
        others = [v for k, v in told.items() if k != text and isinstance(v, int | float)]
        rows.append(_EchoedToken(token, text_or_none(text), _judged(values[i], others)))
    return rows


def _aligned(
    rows: Sequence[_EchoedToken], ask: ScoringRequest
) -> tuple[tuple[ScoredDraftToken, ...], tuple[int, ...] | None]:
    """Return the draft's tokens as far as the server has split its text so, and the prompt as it has it."""
    ids = [row.id for row in rows]
    if ask.prompt is None:
        return (), tuple(ids)
    length = len(ask.prompt)
    spots: list[ScoredDraftToken] = []
    for token, row in zip(ask.draft, rows[length:], strict=False):
        if row.id != token:
            break
        spots.append(row.spot())
    if len(rows) > length + len(ask.draft):  # then the new tokens do not come right behind the draft
        if not ask.draft:
            return (), tuple(ids)
        spots = spots[: len(ask.draft) - 1]
    return tuple(spots), tuple(ids[:length])


def _completion_tokens(answer: Any, ask: ScoringRequest) -> int:
    usage = field_of(answer, "usage")
    told = field_of(usage, "completion_tokens")
    return told if isinstance(told, int) else ask.count


def _new_text(choice: Any, echoed: str, new: Sequence[ScoringToken]) -> str:
    """Return the text of the new tokens alone; servers differ in whether it comes after what is echoed."""
    text = text_in(choice)
    if text == "".join(token.text or "" for token in new):
        return text
    return text.removeprefix(echoed)
