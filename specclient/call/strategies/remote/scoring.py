"""Turn a prompt and its draft into a request that scores them, and the answer into what the target thinks.

What the forms of :data:`specclient.types.capabilities.Verification` share. :mod:`.ranked` and :mod:`.echoed`
have a pair of pure functions for each, how to ask and how to read; :mod:`.forms` is their table. All are
greedy, and all ask for new tokens beyond the draft in the same request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from specclient.call.strategies.context import without_idempotency_key
from specclient.errors import APIResponseValidationError
from specclient.providers.encoding import json_of
from specclient.providers.endpoint import Endpoint
from specclient.types.api_method import ApiMethod
from specclient.types.call import MeteredModel
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request
from specclient.types.usage import CompletionUsage


class ScoringToken(NamedTuple):
    """A token; its text by itself, where the server tells it."""

    id: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ScoringRequest:
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


class ScoredDraftToken(NamedTuple):
    """A draft token as the target sees it.

    Attributes:
        greedy: whether the target would have chosen it; None where that cannot be told for certain.
        best: what it would have chosen; None where that is not told.
    """

    token: ScoringToken
    greedy: bool | None
    best: ScoringToken | None = None


@dataclass(frozen=True, slots=True)
class ScoringResult:
    """What an answer tells.

    Attributes:
        spots: the draft's tokens, as far as the target has split the text as the draft has.
        new: the new tokens; ``text``: theirs.
        stopped: whether the answer ends with them.
        prompt: the prompt's ids as the target has them; None where it does not tell.
    """

    spots: tuple[ScoredDraftToken, ...]
    new: tuple[ScoringToken, ...]
    text: str
    stopped: bool
    prompt: tuple[int, ...] | None = None


class ScoringFormat(NamedTuple):
    """One way of having prompts scored.

    Attributes:
        by_text: whether only text can be sent.
        streams: whether new tokens without a draft may be streamed, each chunk with its ``token_ids``.
    """

    ask: Callable[[Request, Endpoint | None, ScoringRequest], Request]
    read: Callable[[Any, ScoringRequest], ScoringResult]
    by_text: bool = False
    streams: bool = False


class NativeGeneration(MeteredModel):
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


def unverifiable_answer(what: str) -> APIResponseValidationError:
    """Return the error for an answer that does not tell what it was asked for."""
    way_out = "see whether capabilities.verification names what this server speaks"
    return APIResponseValidationError(message=f"The answer cannot verify a draft: {what}; {way_out}")


def completion(
    request: Request, ask: ScoringRequest, prompt: Any, body: Mapping[str, Any], **params: Any
) -> Request:
    """Return a request for the new tokens after a prompt, text or ids, with further fields in its body."""
    given: dict[str, Any] = {"prompt": prompt, "max_tokens": ask.count, "temperature": 0, **params}
    if ask.stop:
        given["stop"] = list(ask.stop)
    options = replace(without_idempotency_key(request.options), body=dict(body))
    return replace(request, method=COMPLETION, params=given, options=options, stream=False)


def generate(request: Request, endpoint: Endpoint | None, body: Mapping[str, Any]) -> Request:
    """Return a request to a server's own ``/generate``, which stands beside its OpenAI routes."""
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
    """Return an answer's first choice."""
    if not answer.choices:
        raise unverifiable_answer("it has no choices")
    return answer.choices[0]


def text_in(choice: Any) -> str:
    """Return a choice's text."""
    return choice.text if isinstance(choice.text, str) else ""


def are_ids(value: Any) -> bool:
    """Tell whether a value is a list of token ids."""
    return isinstance(value, list | tuple) and all(type(each) is int for each in value)


def field_of(where: Any, key: str) -> Any:
    """Return a field of an object or a mapping; None where it has none."""
    if isinstance(where, Mapping):
        return where.get(key)
    return getattr(where, key, None)


def text_or_none(value: Any) -> str | None:
    """Return a token's text, where that is what a server tells."""
    return value if isinstance(value, str) else None
