"""Common parts of the scoring formats: how a target is made to score a draft's tokens in one request.

A format (a value of :data:`specclient.types.capabilities.Verification`) is a pair of pure functions that
build the request and parse the answer, in :mod:`.prompt_logprobs` and :mod:`.echo_logprobs`;
:mod:`.scoring_formats` is their table. All requests are greedy, and all generate new tokens after the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from specclient.call.request_params import without_idempotency_key
from specclient.errors import APIResponseValidationError
from specclient.providers.encoding import json_of
from specclient.providers.endpoint import Endpoint
from specclient.types.api_method import ApiMethod
from specclient.types.call import MeteredModel
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request
from specclient.types.usage import CompletionUsage


class ScoringToken(NamedTuple):
    """A token id, with the token's own text where the server reports it."""

    id: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """A prompt and a draft to be scored.

    Attributes:
        prompt: token ids before the draft; None to have the target tokenize ``text``.
        text: the prompt's text; required where the target accepts no ids.
        draft: token ids to be scored.
        draft_text: their text.
        new_tokens: how many tokens to generate after the draft.
        stop: stop strings for the generated tokens.
        stop_ids: tokens that end the answer, in addition to the target's own.
        special_tokens: whether the target adds special tokens to ``text``; False if ``text`` contains them.
    """

    prompt: tuple[int, ...] | None
    text: str = ""
    draft: tuple[int, ...] = ()
    draft_text: str = ""
    new_tokens: int = 1
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    special_tokens: bool = True

    @property
    def ids(self) -> list[int]:
        """The token ids of prompt and draft."""
        return [*(self.prompt or ()), *self.draft]


class ScoredDraftToken(NamedTuple):
    """A draft token with the target's score.

    Attributes:
        is_greedy: whether it is the target's greedy choice; None where that is not certain.
        greedy_token: the target's greedy choice; None where it is not reported.
    """

    token: ScoringToken
    is_greedy: bool | None
    greedy_token: ScoringToken | None = None


@dataclass(frozen=True, slots=True)
class ScoringResult:
    """The parsed answer to a :class:`ScoringRequest`.

    Attributes:
        draft_tokens: the scored tokens, up to the first place where the target tokenizes the draft's text
            differently.
        new_tokens: the generated tokens.
        text: their text.
        finished: whether the answer ends with them.
        prompt: the prompt's token ids as the target has them; None where it does not report them.
    """

    draft_tokens: tuple[ScoredDraftToken, ...]
    new_tokens: tuple[ScoringToken, ...]
    text: str
    finished: bool
    prompt: tuple[int, ...] | None = None


class ScoringFormat(NamedTuple):
    """One way to have a prompt scored.

    Attributes:
        build_request: returns the request that scores a draft.
        parse: returns the result in an answer.
        text_only: whether the target accepts text only, no token ids.
        streams: whether tokens generated without a draft can be streamed, each chunk with its ``token_ids``.
        takes_special_tokens: whether the target can be told not to add special tokens to a text.
        takes_stop_ids: whether it accepts token ids that end the answer.
    """

    build_request: Callable[[Request, Endpoint | None, ScoringRequest], Request]
    parse: Callable[[Any, ScoringRequest], ScoringResult]
    text_only: bool = False
    streams: bool = False
    takes_special_tokens: bool = False
    takes_stop_ids: bool = False


class NativeGeneration(MeteredModel):
    """The answer of SGLang's or TGI's ``/generate``; its fields are kept as received."""

    @property
    def usage(self) -> CompletionUsage | None:
        """Its token counts, in OpenAI's form."""
        fields = self.model_extra or {}
        meta = fields.get("meta_info")
        if isinstance(meta, Mapping):  # SGLang
            prompt, new = meta.get("prompt_tokens"), meta.get("completion_tokens")
        else:
            details = fields.get("details") or {}
            prefill = details.get("prefill")
            prompt, new = (len(prefill) if prefill else None), details.get("generated_tokens")
        if not isinstance(prompt, int) or not isinstance(new, int):
            return None
        return CompletionUsage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new)


def unverifiable_answer(problem: str) -> APIResponseValidationError:
    """Return the error for an answer that lacks what was requested."""
    advice = "check that capabilities.verification names the format of this server"
    return APIResponseValidationError(message=f"The answer cannot verify a draft: {problem}; {advice}")


def completion_request(
    request: Request, scoring: ScoringRequest, prompt: Any, body: Mapping[str, Any], **params: Any
) -> Request:
    """Return a completions request that generates new tokens after a prompt.

    Args:
        prompt: text or token ids.
        body: further fields of the body.
        params: further parameters.
    """
    all_params: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": scoring.new_tokens,
        "temperature": 0,
        **params,
    }
    if scoring.stop:
        all_params["stop"] = list(scoring.stop)
    options = replace(without_idempotency_key(request.options), body=dict(body))
    return replace(request, method=COMPLETION, params=all_params, options=options, stream=False)


def native_generate_request(request: Request, endpoint: Endpoint | None, body: Mapping[str, Any]) -> Request:
    """Return a request to a server's own ``/generate``, a sibling of its OpenAI routes under ``/v1``."""
    parts = urlsplit(endpoint.base_url if endpoint is not None else "")
    root = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="").geturl()
    method = ApiMethod(
        name="generate",
        verb="POST",
        path=f"{root}/generate",
        params=frozenset({"inputs"}),
        response_type=NativeGeneration,
        metered=True,
        operation="generate",
    )
    options = replace(without_idempotency_key(request.options), body={})
    return replace(request, method=method, params={}, content=json_of(body), options=options, stream=False)


def choice_of(answer: Any) -> Any:
    """Return an answer's first choice.

    Raises:
        APIResponseValidationError: it has none.
    """
    if not answer.choices:
        raise unverifiable_answer("it has no choices")
    return answer.choices[0]


def text_in(choice: Any) -> str:
    """Return a choice's text."""
    return choice.text if isinstance(choice.text, str) else ""


def are_ids(value: Any) -> bool:
    """Return whether a value is a list of token ids."""
    return isinstance(value, list | tuple) and all(type(each) is int for each in value)


def text_or_none(value: Any) -> str | None:
    """Return a token's text; None where the server reports something else."""
    return value if isinstance(value, str) else None
