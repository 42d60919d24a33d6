"""Scoring formats that echo the prompt with log-probabilities: TGI's, Fireworks' and Together's.

They report alternatives by text, if at all, so the greedy choice is not always certain.
"""

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
    completion_request,
    native_generate_request,
    text_in,
    text_or_none,
    unverifiable_answer,
)
from specclient.providers.endpoint import Endpoint
from specclient.types.base import field_of
from specclient.types.request import Request

#: Tolerance for rounding in comparisons of probabilities.
_EPSILON = 1e-4
#: Alternatives requested: the most that every server of this kind returns.
_ALTERNATIVES = 5


# TGI: text only, no alternatives; a token is known to be greedy if its probability is above one half


def tgi_request(request: Request, endpoint: Endpoint | None, scoring: ScoringRequest) -> Request:
    """Return the request in TGI's format."""
    parameters: dict[str, Any] = {
        "details": True,
        "decoder_input_details": True,
        "max_new_tokens": scoring.new_tokens,
        "do_sample": False,
    }
    if scoring.stop:
        parameters["stop"] = list(scoring.stop)
    body = {"inputs": scoring.text + scoring.draft_text, "parameters": parameters}
    return native_generate_request(request, endpoint, body)


def parse_tgi(answer: Any, scoring: ScoringRequest) -> ScoringResult:
    """Parse an answer in TGI's format.

    Raises:
        APIResponseValidationError: it lacks details.
    """
    details = field_of(answer, "details")
    prefill, tokens = field_of(details, "prefill"), field_of(details, "tokens")
    if not prefill or tokens is None:
        raise unverifiable_answer("it has no details with prefill and tokens")
    echoed = [
        _EchoedToken(
            field_of(row, "id"),
            text_or_none(field_of(row, "text")),
            is_greedy_choice(field_of(row, "logprob"), ()),
        )
        for row in prefill
    ]
    new = tuple(ScoringToken(field_of(row, "id"), text_or_none(field_of(row, "text"))) for row in tokens)
    finished = field_of(details, "finish_reason") in ("eos_token", "stop_sequence")
    draft_tokens, prompt = _split_echo(echoed, scoring)
    text = str(field_of(answer, "generated_text") or "")
    return ScoringResult(draft_tokens, new, text, finished, prompt)


# Fireworks: accepts token ids, and echoes the last N tokens


def echo_last_request(request: Request, _: Endpoint | None, scoring: ScoringRequest) -> Request:
    """Return the request in Fireworks' format (``echo_last``)."""
    body: dict[str, Any] = {"return_token_ids": True}
    if scoring.prompt is None:
        return completion_request(request, scoring, scoring.text, body, echo=True, logprobs=_ALTERNATIVES)
    if scoring.draft:
        body["echo_last"] = len(scoring.draft)
    return completion_request(request, scoring, scoring.ids, body, logprobs=_ALTERNATIVES)


def parse_echo_last(answer: Any, scoring: ScoringRequest) -> ScoringResult:
    """Parse an answer in Fireworks' format.

    Raises:
        APIResponseValidationError: it lacks log-probabilities, or those of other tokens.
    """
    choice = choice_of(answer)
    rows = _parse_logprobs(field_of(choice, "logprobs"))
    echoed = len(scoring.draft)
    if scoring.prompt is None:
        echoed = len(rows) - _completion_tokens(answer, scoring)
    new = tuple(ScoringToken(row.id, row.text) for row in rows[echoed:])
    if len(rows) < echoed:
        raise unverifiable_answer(f"its logprobs have {len(rows)} tokens; {echoed} were to be echoed")
    scored: list[ScoredDraftToken] = []
    for token, row in zip(scoring.draft, rows[:echoed], strict=False):
        if row.id != token:
            raise unverifiable_answer(f"its logprobs have token {row.id} where {token} was sent")
        scored.append(row.scored())
    prompt = tuple(row.id for row in rows[:echoed]) if scoring.prompt is None else None
    text = _new_text(choice, scoring.text if scoring.prompt is None else scoring.draft_text, new)
    return ScoringResult(tuple(scored), new, text, choice.finish_reason == "stop", prompt)


# Together: accepts text only, and echoes all of it


def echo_request(request: Request, _: Endpoint | None, scoring: ScoringRequest) -> Request:
    """Return the request in Together's format (``echo``)."""
    text = scoring.text + scoring.draft_text
    return completion_request(request, scoring, text, {}, echo=True, logprobs=_ALTERNATIVES)


def parse_echo(answer: Any, scoring: ScoringRequest) -> ScoringResult:
    """Parse an answer in Together's format, or that of a server that echoes as OpenAI's legacy API did.

    Raises:
        APIResponseValidationError: it lacks log-probabilities, or does not echo the prompt.
    """
    choice = choice_of(answer)
    rows = _parse_logprobs(field_of(choice, "logprobs"))
    prompts = field_of(answer, "prompt")
    if prompts:  # Together: beside the choices, which hold only the new tokens
        echoed, new_rows = _parse_logprobs(field_of(prompts[0], "logprobs")), rows
    else:
        cut = len(rows) - _completion_tokens(answer, scoring)
        echoed, new_rows = rows[:cut], rows[cut:]
    if not echoed:
        raise unverifiable_answer("it does not echo the prompt")
    draft_tokens, prompt = _split_echo(echoed, scoring)
    new = tuple(ScoringToken(row.id, row.text) for row in new_rows)
    text = _new_text(choice, scoring.text + scoring.draft_text, new)
    return ScoringResult(draft_tokens, new, text, choice.finish_reason == "stop", prompt)


class _EchoedToken(NamedTuple):
    """A scored token; ``is_greedy`` is None where it is not certain."""

    id: int
    text: str | None
    is_greedy: bool | None

    def scored(self) -> ScoredDraftToken:
        """Return it as a draft token; the id of the greedy choice is not reported."""
        return ScoredDraftToken(ScoringToken(self.id, self.text), self.is_greedy)


def is_greedy_choice(logprob: Any, others: Sequence[float]) -> bool | None:
    """Return whether a token is the greedy choice; None where that is not certain.

    Alternatives are reported by text, and two tokens may have the same text (``▁the`` and ``the``, parts of
    characters), so that one hides the other. The token is certainly greedy only if it is likelier than every
    reported alternative, and likelier than all unreported tokens together.

    Args:
        logprob: of the token; anything but a number counts as unknown.
        others: log-probabilities of reported alternatives.
    """
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    own, reported = math.exp(min(logprob, 0.0)), [math.exp(min(other, 0.0)) for other in others]
    best = max(reported, default=0.0)
    if best > own + _EPSILON:
        return False
    unreported = 1.0 - own - sum(reported)
    return True if own > best + _EPSILON and own > unreported + _EPSILON else None


def _parse_logprobs(logprobs: Any) -> list[_EchoedToken]:
    """Parse the arrays of OpenAI's legacy completions, extended by ``token_ids``."""
    ids, texts = field_of(logprobs, "token_ids"), field_of(logprobs, "tokens")
    values, tops = field_of(logprobs, "token_logprobs"), field_of(logprobs, "top_logprobs")
    if not are_ids(ids) or not isinstance(values, Sequence) or len(values) != len(ids):
        raise unverifiable_answer("its logprobs have no token_ids and token_logprobs")
    rows = []
    for i, token in enumerate(ids):
        top = tops[i] if isinstance(tops, Sequence) and i < len(tops) else None
        text = texts[i] if isinstance(texts, Sequence) and i < len(texts) else None
        alternatives = top if isinstance(top, Mapping) else {}
        others = [v for k, v in alternatives.items() if k != text and isinstance(v, int | float)]
        rows.append(_EchoedToken(token, text_or_none(text), is_greedy_choice(values[i], others)))
    return rows


def _split_echo(
    echoed: Sequence[_EchoedToken], scoring: ScoringRequest
) -> tuple[tuple[ScoredDraftToken, ...], tuple[int, ...] | None]:
    """Return the draft's tokens, as far as the server tokenizes its text alike, and the prompt's ids."""
    ids = [row.id for row in echoed]
    if scoring.prompt is None:
        return (), tuple(ids)
    length = len(scoring.prompt)
    scored: list[ScoredDraftToken] = []
    for token, row in zip(scoring.draft, echoed[length:], strict=False):
        if row.id != token:
            break
        scored.append(row.scored())
    if len(echoed) > length + len(scoring.draft):  # the new tokens do not directly follow the draft
        if not scoring.draft:
            return (), tuple(ids)
        scored = scored[: len(scoring.draft) - 1]
    return tuple(scored), tuple(ids[:length])


def _completion_tokens(answer: Any, scoring: ScoringRequest) -> int:
    count = field_of(field_of(answer, "usage"), "completion_tokens")
    return count if isinstance(count, int) else scoring.new_tokens


def _new_text(choice: Any, echoed: str, new: Sequence[ScoringToken]) -> str:
    """Return the text of the new tokens; some servers return it after the echoed text."""
    text = text_in(choice)
    if text == "".join(token.text or "" for token in new):
        return text
    return text.removeprefix(echoed)
