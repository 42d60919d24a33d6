"""Turn a prompt and its draft into a request that scores them, and the answer into what the target thinks.

One row a form of :data:`specclient.types.capabilities.Verification`: how to ask, how to read; pure. All are
greedy, and all ask for new tokens beyond the draft in the same request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from specclient.errors import APIResponseValidationError
from specclient.providers.base import Endpoint
from specclient.providers.encoding import json_of
from specclient.types.call import Metered
from specclient.types.method import Method
from specclient.types.methods import COMPLETION
from specclient.types.request import Request
from specclient.types.usage import CompletionUsage

#: Room for rounding where probabilities are compared.
_EPSILON = 1e-4
#: Alternatives asked for where they are told by text: the most that every server of the kind gives.
_ALTERNATIVES = 5


class Token(NamedTuple):
    """A token; its text by itself, where the server tells it."""

    id: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be scored.

    Attributes:
        prompt: ids of what comes before the draft; None lets the target make them of ``text``.
        text: the same as text; needed where the target takes no ids.
        draft: ids to be scored; ``draft_text``: the same as text.
        count: new tokens that are wanted beyond them.
        stop: strings that may end those.
    """

    prompt: tuple[int, ...] | None
    text: str = ""
    draft: tuple[int, ...] = ()
    draft_text: str = ""
    count: int = 1
    stop: tuple[str, ...] = ()

    @property
    def ids(self) -> list[int]:
        """Prompt and draft."""
        return [*(self.prompt or ()), *self.draft]


class Spot(NamedTuple):
    """A draft token as the target sees it.

    Attributes:
        greedy: whether the target would have chosen it; None where that cannot be told for certain.
        best: what it would have chosen; None where that is not told.
    """

    token: Token
    greedy: bool | None
    best: Token | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answer tells.

    Attributes:
        spots: the draft's tokens, as far as the target has split the text as the draft has.
        new: the new tokens; ``text``: theirs.
        stopped: whether the answer ends with them.
        prompt: the prompt's ids as the target has them; None where it does not tell.
    """

    spots: tuple[Spot, ...]
    new: tuple[Token, ...]
    text: str
    stopped: bool
    prompt: tuple[int, ...] | None = None


class Form(NamedTuple):
    """One way of having prompts scored; ``by_text`` where only text can be sent."""

    ask: Callable[[Request, Endpoint | None, Ask], Request]
    read: Callable[[Any, Ask], Seen]
    by_text: bool = False


class Generated(Metered):
    """The answer of SGLang's or TGI's ``/generate``; its fields are kept as they came."""

    @property
    def usage(self) -> CompletionUsage | None:
        """Its counts, in OpenAI's form."""
        told = self.model_extra or {}
        meta = told.get("meta_info")
        if isinstance(meta, Mapping):  # SGLang
            counts = meta.get("prompt_tokens"), meta.get("completion_tokens")
        else:
            details = told.get("details") or {}
            prefill = details.get("prefill")
            counts = (len(prefill) if prefill else None), details.get("generated_tokens")
        prompt, new = counts
        if not isinstance(prompt, int) or not isinstance(new, int):
            return None
        return CompletionUsage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new)


def unreadable(what: str) -> APIResponseValidationError:
    """Return the error for an answer that does not tell what it was asked for."""
    way_out = "see whether capabilities.verification names what this server speaks"
    return APIResponseValidationError(message=f"The answer cannot verify a draft: {what}; {way_out}")


def _completion(request: Request, ask: Ask, prompt: Any, body: Mapping[str, Any], **params: Any) -> Request:
    given: dict[str, Any] = {"prompt": prompt, "max_tokens": ask.count, "temperature": 0, **params}
    if ask.stop:
        given["stop"] = list(ask.stop)
    options = replace(request.options, body=dict(body))
    return replace(request, method=COMPLETION, params=given, options=options, stream=False)


def _generate(request: Request, endpoint: Endpoint | None, body: Mapping[str, Any]) -> Request:
    """Return a request to a server's own ``/generate``, which stands beside its OpenAI routes."""
    parts = urlsplit(endpoint.base_url if endpoint is not None else "")
    root = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="").geturl()
    method = Method(
        name="generate",
        verb="POST",
        path=f"{root}/generate",
        params=frozenset({"inputs"}),
        gives=Generated,
        metered=True,
        operation="generate",
    )
    options = replace(request.options, body={})
    return replace(request, method=method, params={}, content=json_of(body), options=options, stream=False)


# vLLM, and our own engine and server


def _ask_vllm(request: Request, _: Endpoint | None, ask: Ask) -> Request:
    body: dict[str, Any] = {"return_token_ids": True}
    if ask.draft:  # else left out, as it keeps vLLM from reading its prefix cache
        body["prompt_logprobs"] = 1
    return _completion(request, ask, ask.text if ask.prompt is None else ask.ids, body)


def _read_vllm(answer: Any, ask: Ask) -> Seen:
    choice = _choice(answer)
    new = _get(choice, "token_ids")
    if not _are_ids(new):
        raise unreadable("it has no token_ids")
    spots: list[Spot] = []
    if ask.draft:
        scores = _get(choice, "prompt_logprobs")
        if not isinstance(scores, Sequence) or len(scores) != len(ask.ids):
            raise unreadable(f"it has no prompt_logprobs of the {len(ask.ids)} tokens sent")
        spots = [_ranked(scores[len(ask.prompt or ()) + i], token) for i, token in enumerate(ask.draft)]
    prompt = _get(choice, "prompt_token_ids")
    told = tuple(prompt) if _are_ids(prompt) else None
    return Seen(tuple(spots), tuple(map(Token, new)), _text(choice), choice.finish_reason == "stop", told)


def _ranked(entry: Any, token: int) -> Spot:
    """Read one entry: the token that was sent and the likeliest, each with its rank; 1 is the likeliest.

    Equals share a rank: then the greedy choice is one of them, and which is not told.
    """
    rows = {int(key): row for key, row in entry.items()} if isinstance(entry, Mapping) else {}
    own = rows.get(token)
    if own is None:
        raise unreadable(f"prompt_logprobs does not tell of token {token}")
    first = [number for number, row in rows.items() if _get(row, "rank") == 1]
    sent = Token(token, _get(own, "decoded_token"))
    if len(first) != 1:
        return Spot(sent, None)
    best = Token(first[0], _get(rows[first[0]], "decoded_token"))
    return Spot(sent, first[0] == token, best)


# SGLang


def _ask_sglang(request: Request, endpoint: Endpoint | None, ask: Ask) -> Request:
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
    return _generate(request, endpoint, body)


def _read_sglang(answer: Any, ask: Ask) -> Seen:
    meta = _get(answer, "meta_info")
    inputs = _get(meta, "input_token_logprobs")
    new = [_entry(each) for each in _get(meta, "output_token_logprobs") or ()]
    if meta is None or any(each is None for each in new) or (not new and not _ended(meta)):
        raise unreadable("its meta_info has no output_token_logprobs")
    spots: list[Spot] = []
    if count := len(ask.draft):
        tops = _get(meta, "input_top_logprobs")
        if not inputs or not tops or len(inputs) < count or len(tops) < count:
            raise unreadable("its meta_info has no input_top_logprobs of the draft")
        for token, own, top in zip(ask.draft, inputs[-count:], tops[-count:], strict=True):
            sent, best = _entry(own), _entry(top[0]) if top else None
            if sent is None or sent.id != token:
                raise unreadable(f"its input_token_logprobs do not end with the draft ({token})")
            spots.append(Spot(sent, None if best is None else best.id == token, best))
    prompt = None
    if ask.prompt is None:
        read = [_entry(each) for each in inputs or ()]
        prompt = tuple(each.id for each in read if each is not None) or None
    tokens = tuple(each for each in new if each is not None)
    return Seen(tuple(spots), tokens, str(_get(answer, "text") or ""), _ended(meta), prompt)


def _entry(row: Any) -> Token | None:
    """Read ``[logprob, id, text or null]``."""
    if not isinstance(row, Sequence) or len(row) < 2 or not isinstance(row[1], int):
        return None
    return Token(row[1], row[2] if len(row) > 2 and isinstance(row[2], str) else None)


def _ended(meta: Any) -> bool:
    reason = _get(meta, "finish_reason")
    return bool((_get(reason, "type") if isinstance(reason, Mapping) else reason) == "stop")


# TGI: text alone, and no likelier alternatives; a token is known to be greedy if it holds more than half


def _ask_tgi(request: Request, endpoint: Endpoint | None, ask: Ask) -> Request:
    parameters: dict[str, Any] = {
        "details": True, "decoder_input_details": True, "max_new_tokens": ask.count, "do_sample": False,
    }  # fmt: skip
    if ask.stop:
        parameters["stop"] = list(ask.stop)
    return _generate(request, endpoint, {"inputs": ask.text + ask.draft_text, "parameters": parameters})


def _read_tgi(answer: Any, ask: Ask) -> Seen:
    details = _get(answer, "details")
    prefill, tokens = _get(details, "prefill"), _get(details, "tokens")
    if not prefill or tokens is None:
        raise unreadable("it has no details with prefill and tokens")
    rows = [_Row(_get(r, "id"), _get(r, "text"), _judged(_get(r, "logprob"), ())) for r in prefill]
    new = tuple(Token(_get(row, "id"), _get(row, "text")) for row in tokens)
    stopped = _get(details, "finish_reason") in ("eos_token", "stop_sequence")
    spots, prompt = _aligned(rows, ask)
    return Seen(spots, new, str(_get(answer, "generated_text") or ""), stopped, prompt)


# Echoed prompts: Fireworks sends ids and has the last N tokens echoed; Together takes text and echoes all


def _ask_echo_last(request: Request, _: Endpoint | None, ask: Ask) -> Request:
    if ask.prompt is None:
        return _completion(
            request, ask, ask.text, {"return_token_ids": True}, echo=True, logprobs=_ALTERNATIVES
        )
    body: dict[str, Any] = {"return_token_ids": True}
    if ask.draft:
        body["echo_last"] = len(ask.draft)
    return _completion(request, ask, ask.ids, body, logprobs=_ALTERNATIVES)


def _read_echo_last(answer: Any, ask: Ask) -> Seen:
    choice = _choice(answer)
    rows = _legacy(_get(choice, "logprobs"))
    echoed = len(ask.draft)
    if ask.prompt is None:
        echoed = len(rows) - _completion_tokens(answer, ask)
    new = tuple(Token(row.id, row.text) for row in rows[echoed:])
    if len(rows) < echoed:
        raise unreadable(f"its logprobs have {len(rows)} tokens; {echoed} were to be echoed")
    spots: list[Spot] = []
    for token, row in zip(ask.draft, rows[:echoed], strict=False):
        if row.id != token:
            raise unreadable(f"its logprobs tell of token {row.id} where {token} was sent")
        spots.append(row.spot())
    prompt = tuple(row.id for row in rows[:echoed]) if ask.prompt is None else None
    text = _new_text(choice, ask.text if ask.prompt is None else ask.draft_text, new)
    return Seen(tuple(spots), new, text, choice.finish_reason == "stop", prompt)


def _ask_echo(request: Request, _: Endpoint | None, ask: Ask) -> Request:
    return _completion(request, ask, ask.text + ask.draft_text, {}, echo=True, logprobs=_ALTERNATIVES)


def _read_echo(answer: Any, ask: Ask) -> Seen:
    choice = _choice(answer)
    own = _legacy(_get(choice, "logprobs"))
    prompts = _get(answer, "prompt")
    if prompts:  # Together: beside the choices, which hold the new tokens alone
        echoed, new_rows = _legacy(_get(prompts[0], "logprobs")), own
    else:
        cut = len(own) - _completion_tokens(answer, ask)
        echoed, new_rows = own[:cut], own[cut:]
    if not echoed:
        raise unreadable("it does not echo the prompt")
    spots, prompt = _aligned(echoed, ask)
    new = tuple(Token(row.id, row.text) for row in new_rows)
    text = _new_text(choice, ask.text + ask.draft_text, new)
    return Seen(spots, new, text, choice.finish_reason == "stop", prompt)


class _Row(NamedTuple):
    """A scored token, and whether it is the greedy choice; None where that is not certain."""

    id: int
    text: str | None
    greedy: bool | None

    def spot(self) -> Spot:
        """Return it as part of a draft; what would be in its place is not told by id."""
        return Spot(Token(self.id, self.text), self.greedy)


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


def _legacy(logprobs: Any) -> list[_Row]:
    """Read OpenAI's legacy arrays, where they name the ids too."""
    ids, texts = _get(logprobs, "token_ids"), _get(logprobs, "tokens")
    values, tops = _get(logprobs, "token_logprobs"), _get(logprobs, "top_logprobs")
    if not _are_ids(ids) or not isinstance(values, Sequence) or len(values) != len(ids):
        raise unreadable("its logprobs have no token_ids and token_logprobs")
    rows = []
    for i, token in enumerate(ids):
        top = tops[i] if isinstance(tops, Sequence) and i < len(tops) else None
        text = texts[i] if isinstance(texts, Sequence) and i < len(texts) else None
        told = top if isinstance(top, Mapping) else {}
        others = [v for k, v in told.items() if k != text and isinstance(v, int | float)]
        rows.append(_Row(token, text, _judged(values[i], others)))
    return rows


def _aligned(rows: Sequence[_Row], ask: Ask) -> tuple[tuple[Spot, ...], tuple[int, ...] | None]:
    """Return the draft's tokens as far as the server has split its text so, and the prompt as it has it."""
    ids = [row.id for row in rows]
    if ask.prompt is None:
        return (), tuple(ids)
    length = len(ask.prompt)
    spots: list[Spot] = []
    for token, row in zip(ask.draft, rows[length:], strict=False):
        if row.id != token:
            break
        spots.append(row.spot())
    return tuple(spots), tuple(ids[:length])


def _completion_tokens(answer: Any, ask: Ask) -> int:
    usage = _get(answer, "usage")
    told = _get(usage, "completion_tokens")
    return told if isinstance(told, int) else ask.count


def _choice(answer: Any) -> Any:
    if not answer.choices:
        raise unreadable("it has no choices")
    return answer.choices[0]


def _text(choice: Any) -> str:
    return choice.text if isinstance(choice.text, str) else ""


def _new_text(choice: Any, echoed: str, new: Sequence[Token]) -> str:
    """Return the text of the new tokens alone; servers differ in whether it comes after what is echoed."""
    text = _text(choice)
    if text == "".join(token.text or "" for token in new):
        return text
    return text.removeprefix(echoed)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, int) for each in value)


def _get(where: Any, key: str) -> Any:
    if isinstance(where, Mapping):
        return where.get(key)
    return getattr(where, key, None)


#: What :attr:`specclient.types.capabilities.Capabilities.verification` names.
FORMS: Mapping[str, Form] = {
    "prompt_logprobs": Form(_ask_vllm, _read_vllm),
    "sglang": Form(_ask_sglang, _read_sglang),
    "tgi": Form(_ask_tgi, _read_tgi, by_text=True),
    "echo_last": Form(_ask_echo_last, _read_echo_last),
    "echo": Form(_ask_echo, _read_echo, by_text=True),
}
