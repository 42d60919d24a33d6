"""Turn scores that name the likeliest tokens by their ids, vLLM's and SGLang's, into verdicts on a draft."""

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
    completion,
    field_of,
    generate,
    text_in,
    text_or_none,
    unverifiable_answer,
)
from specclient.providers.endpoint import Endpoint
from specclient.types.request import Request

# vLLM, and our own engine and server


def ask_vllm(request: Request, _: Endpoint | None, ask: ScoringRequest) -> Request:
    body: dict[str, Any] = {"return_token_ids": True}
    if ask.draft:  # else left out, as it keeps vLLM from reading its prefix cache
        body["prompt_logprobs"] = 1
    return completion(request, ask, ask.text if ask.prompt is None else ask.ids, body)


def read_vllm(answer: Any, ask: ScoringRequest) -> ScoringResult:
    choice = choice_of(answer)
    new = field_of(choice, "token_ids")
    if not are_ids(new):
        raise unverifiable_answer("it has no token_ids")
    spots: list[ScoredDraftToken] = []
    if ask.draft:
        scores = field_of(choice, "prompt_logprobs")
        if not isinstance(scores, Sequence) or len(scores) != len(ask.ids):
            raise unverifiable_answer(f"it has no prompt_logprobs of the {len(ask.ids)} tokens sent")
        spots = [_ranked(scores[len(ask.prompt or ()) + i], token) for i, token in enumerate(ask.draft)]
    prompt = field_of(choice, "prompt_token_ids")
    told = tuple(prompt) if are_ids(prompt) else None
    return ScoringResult(
        tuple(spots), tuple(map(ScoringToken, new)), text_in(choice), choice.finish_reason == "stop", told
    )


def _ranked(entry: Any, token: int) -> ScoredDraftToken:
    """Read one entry: the token that was sent and the likeliest, each with its rank; 1 is the likeliest.

    Equals share a rank: then the greedy choice is one of them, and which is not told.
    """
    told = entry.items() if isinstance(entry, Mapping) else ()
    rows = {int(key): row for key, row in told if str(key).isdecimal()}
    own = rows.get(token)
    if own is None:
        raise unverifiable_answer(f"prompt_logprobs does not tell of token {token}")
    first = [number for number, row in rows.items() if field_of(row, "rank") == 1]
    sent = ScoringToken(token, text_or_none(field_of(own, "decoded_token")))
    if len(first) != 1:
        return ScoredDraftToken(sent, None)
    best = ScoringToken(first[0], text_or_none(field_of(rows[first[0]], "decoded_token")))
    return ScoredDraftToken(sent, first[0] == token, best)


# SGLang


def ask_sglang(request: Request, endpoint: Endpoint | None, ask: ScoringRequest) -> Request:
    sampling: dict[str, Any] = {"max_new_tokens": ask.count, "temperature": 0}
    if ask.stop:
        sampling["stop"] = list(ask.stop)
    body: dict[str, Any] = {
        "sampling_params": sampling,
        "return_logprob": True,
        "return_text_in_logprobs": True,
    }
    if ask.prompt is None:
        body |= {"text": ask.text, "logprob_start_len": 0}
    else:  # scored from the last token before the draft on, whose own entry is null
        body |= {"input_ids": ask.ids, "logprob_start_len": len(ask.prompt) - 1, "top_logprobs_num": 1}
    return generate(request, endpoint, body)


def read_sglang(answer: Any, ask: ScoringRequest) -> ScoringResult:
    meta = field_of(answer, "meta_info")
    inputs = field_of(meta, "input_token_logprobs")
    new = [_entry(each) for each in field_of(meta, "output_token_logprobs") or ()]
    if meta is None or any(each is None for each in new) or (not new and not _ended(meta)):
        raise unverifiable_answer("its meta_info has no output_token_logprobs")
    spots: list[ScoredDraftToken] = []
    if count := len(ask.draft):
        tops = field_of(meta, "input_top_logprobs")
        if not inputs or not tops or len(inputs) < count or len(tops) < count:
            raise unverifiable_answer("its meta_info has no input_top_logprobs of the draft")
        for token, own, top in zip(ask.draft, inputs[-count:], tops[-count:], strict=True):
            sent, best = _entry(own), _entry(top[0]) if top else None
            if sent is None or sent.id != token:
                raise unverifiable_answer(f"its input_token_logprobs do not end with the draft ({token})")
            spots.append(ScoredDraftToken(sent, None if best is None else best.id == token, best))
    prompt = None
    if ask.prompt is None:
        read = [_entry(each) for each in inputs or ()]
        prompt = tuple(each.id for each in read if each is not None) or None
    tokens = tuple(each for each in new if each is not None)
    return ScoringResult(tuple(spots), tokens, str(field_of(answer, "text") or ""), _ended(meta), prompt)


def _entry(row: Any) -> ScoringToken | None:
    """Read ``[logprob, id, text or null]``."""
    if not isinstance(row, Sequence) or len(row) < 2 or not isinstance(row[1], int):
        return None
    return ScoringToken(row[1], text_or_none(row[2]) if len(row) > 2 else None)


def _ended(meta: Any) -> bool:
    reason = field_of(meta, "finish_reason")
    return bool((field_of(reason, "type") if isinstance(reason, Mapping) else reason) == "stop")
