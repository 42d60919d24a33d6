"""Scoring formats that report the likeliest tokens by id: vLLM's ``prompt_logprobs`` and SGLang's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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

# vLLM, and our own engine and server


def vllm_request(request: Request, _: Endpoint | None, scoring: ScoringRequest) -> Request:
    """Return the request in vLLM's format."""
    body: dict[str, Any] = {"return_token_ids": True}
    if scoring.draft:  # otherwise omitted: it prevents vLLM from using its prefix cache
        body["prompt_logprobs"] = 1
    if scoring.stop_ids:
        body["stop_token_ids"] = list(scoring.stop_ids)
    if scoring.prompt is None and not scoring.special_tokens:
        body["add_special_tokens"] = False
    prompt = scoring.text if scoring.prompt is None else scoring.ids
    return completion_request(request, scoring, prompt, body)


def parse_vllm(answer: Any, scoring: ScoringRequest) -> ScoringResult:
    """Parse an answer in vLLM's format.

    Raises:
        APIResponseValidationError: it lacks token ids or scores.
    """
    choice = choice_of(answer)
    new_ids = field_of(choice, "token_ids")
    if not are_ids(new_ids):
        raise unverifiable_answer("it has no token_ids")
    scored: list[ScoredDraftToken] = []
    if scoring.draft:
        entries = field_of(choice, "prompt_logprobs")
        if not isinstance(entries, Sequence) or len(entries) != len(scoring.ids):
            raise unverifiable_answer(f"it has no prompt_logprobs of the {len(scoring.ids)} tokens sent")
        start = len(scoring.prompt or ())
        scored = [_vllm_entry(entries[start + i], token) for i, token in enumerate(scoring.draft)]
    prompt_ids = field_of(choice, "prompt_token_ids")
    return ScoringResult(
        tuple(scored),
        tuple(map(ScoringToken, new_ids)),
        text_in(choice),
        choice.finish_reason == "stop",
        tuple(prompt_ids) if are_ids(prompt_ids) else None,
    )


def _vllm_entry(entry: Any, token: int) -> ScoredDraftToken:
    """Parse one entry: the token that was sent and the likeliest token, each with its rank.

    The likeliest has rank 1. Tokens of equal probability share a rank: then it is not known which of them is
    the greedy choice.
    """
    items = entry.items() if isinstance(entry, Mapping) else ()
    rows = {int(key): row for key, row in items if str(key).isdecimal()}
    own = rows.get(token)
    if own is None:
        raise unverifiable_answer(f"prompt_logprobs has no entry for token {token}")
    likeliest = [number for number, row in rows.items() if field_of(row, "rank") == 1]
    sent = ScoringToken(token, text_or_none(field_of(own, "decoded_token")))
    if len(likeliest) != 1:
        return ScoredDraftToken(sent, None)
    greedy_id = likeliest[0]
    greedy = ScoringToken(greedy_id, text_or_none(field_of(rows[greedy_id], "decoded_token")))
    return ScoredDraftToken(sent, greedy_id == token, greedy)


# SGLang


def sglang_request(request: Request, endpoint: Endpoint | None, scoring: ScoringRequest) -> Request:
    """Return the request in SGLang's format."""
    sampling: dict[str, Any] = {"max_new_tokens": scoring.new_tokens, "temperature": 0}
    if scoring.stop:
        sampling["stop"] = list(scoring.stop)
    if scoring.stop_ids:
        sampling["stop_token_ids"] = list(scoring.stop_ids)
    body: dict[str, Any] = {
        "sampling_params": sampling,
        "return_logprob": True,
        "return_text_in_logprobs": True,
    }
    if scoring.prompt is None:
        body |= {"text": scoring.text, "logprob_start_len": 0}
    else:  # from the last token before the draft on; that token's own entry is null
        body |= {
            "input_ids": scoring.ids,
            "logprob_start_len": len(scoring.prompt) - 1,
            "top_logprobs_num": 1,
        }
    return native_generate_request(request, endpoint, body)


def parse_sglang(answer: Any, scoring: ScoringRequest) -> ScoringResult:
    """Parse an answer in SGLang's format.

    Raises:
        APIResponseValidationError: it lacks log-probabilities, or those of other tokens.
    """
    meta = field_of(answer, "meta_info")
    inputs = field_of(meta, "input_token_logprobs")
    new = [_sglang_entry(each) for each in field_of(meta, "output_token_logprobs") or ()]
    if meta is None or any(each is None for each in new) or (not new and not _is_finished(meta)):
        raise unverifiable_answer("its meta_info has no output_token_logprobs")
    scored: list[ScoredDraftToken] = []
    if count := len(scoring.draft):
        tops = field_of(meta, "input_top_logprobs")
        if not inputs or not tops or len(inputs) < count or len(tops) < count:
            raise unverifiable_answer("its meta_info has no input_top_logprobs of the draft")
        for token, own, top in zip(scoring.draft, inputs[-count:], tops[-count:], strict=True):
            sent, greedy = _sglang_entry(own), _sglang_entry(top[0]) if top else None
            if sent is None or sent.id != token:
                raise unverifiable_answer(f"its input_token_logprobs do not end with the draft ({token})")
            is_greedy = None if greedy is None else greedy.id == token
            scored.append(ScoredDraftToken(sent, is_greedy, greedy))
    prompt = None
    if scoring.prompt is None:
        entries = [_sglang_entry(each) for each in inputs or ()]
        prompt = tuple(each.id for each in entries if each is not None) or None
    tokens = tuple(each for each in new if each is not None)
    text = str(field_of(answer, "text") or "")
    return ScoringResult(tuple(scored), tokens, text, _is_finished(meta), prompt)


def _sglang_entry(row: Any) -> ScoringToken | None:
    """Parse ``[logprob, id, text or null]``."""
    if not isinstance(row, Sequence) or len(row) < 2 or not isinstance(row[1], int):
        return None
    return ScoringToken(row[1], text_or_none(row[2]) if len(row) > 2 else None)


def _is_finished(meta: Any) -> bool:
    reason = field_of(meta, "finish_reason")
    return bool((field_of(reason, "type") if isinstance(reason, Mapping) else reason) == "stop")
