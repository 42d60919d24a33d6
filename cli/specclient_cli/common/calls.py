"""One call from a text and options: its parameters, its text and its record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import click

from specclient.call.stream import Stream
from specclient.client.sync_client import OpenAI
from specclient.providers.errors import invalid_response_error
from specclient.types.backend import BackendChunk
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.policy import Policy

LOCAL = "local"

#: Default maximum of tokens for a text completion; the API's own default is 16.
DEFAULT_TEXT_TOKENS = 128

CallForm = Literal["text", "chat"]
OriginSegment = tuple[str, bool]
"""A text, and whether its tokens were drafted and accepted."""


@dataclass(frozen=True, slots=True)
class PromptCall:
    """The arguments of a call.

    Attributes:
        model: ``PROVIDER/MODEL`` or ``auto``.
        form: ``text`` completes a prompt, ``chat`` answers messages.
        params: parameters of the API.
        policy: chooses the model; None to use ``model``.
        extension: parameters that only the local engine knows.
        tags: tags of the call in the ledger.
    """

    model: str
    form: CallForm
    params: Mapping[str, Any]
    policy: Policy | None = None
    extension: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def create_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``create``, without ``stream``."""
        body = {"specclient": dict(self.extension)} if self.extension else None
        ours = {"policy": self.policy, "tags": dict(self.tags), "extra_body": body}
        return {"model": self.model, **self.params, **ours}


def prompt_form(model: str) -> CallForm:
    """Return the default form for a model: text for local models, chat for all others."""
    return "text" if model.startswith(f"{LOCAL}/") else "chat"


def sampling_params(form: CallForm, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API parameters for the sampling options.

    Args:
        form: the form of the call.
        model: ``PROVIDER/MODEL``.
        given: ``max_tokens``, ``temperature``, ``top_p``, ``seed`` and ``stop``; None or empty means unset.
    """
    params = {name: value for name, value in given.items() if value not in (None, (), [])}
    if "stop" in params:
        params["stop"] = list(params["stop"])
    if form == "text":
        params.setdefault("max_tokens", DEFAULT_TEXT_TOKENS)
    if model.startswith(f"{LOCAL}/"):
        params.setdefault("temperature", 0.0)
    return params


def engine_params(model: str, draft_length: int | None) -> dict[str, Any]:
    """Return the parameters that only the local engine knows.

    Raises:
        click.UsageError: a draft length was given for a model of another provider.
    """
    if draft_length is None:
        return {}
    if not model.startswith(f"{LOCAL}/"):
        raise click.UsageError(
            f"--draft-length works only with local models, not with {model}; choose one with -m, such as "
            "local/demo."
        )
    return {"draft_length": draft_length}


def prompt_params(form: CallForm, text: str, *, system: str | None = None) -> dict[str, Any]:
    """Return the API parameters for a text: a prompt, or messages with an optional system message."""
    if form == "text":
        return {"prompt": text}
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, {"role": "user", "content": text}]}


def complete_call(client: OpenAI, ask: PromptCall) -> tuple[str, Call]:
    """Send the call and return its text and record."""
    if ask.form == "text":
        completion = checked_answer(client.completions.create(**ask.create_arguments()))
        return completion.choices[0].text if completion.choices else "", completion.meta
    answer: ChatCompletion = checked_answer(client.chat.completions.create(**ask.create_arguments()))
    return plain_text(answer.choices[0].message.content) if answer.choices else "", answer.meta


def checked_answer(answer: Any) -> Any:
    """Return a model's answer, after a check that it is one.

    A body that does not follow the documented format reaches the caller as it was sent: an object, or text.

    Raises:
        APIResponseValidationError: the answer has no choices.
    """
    if isinstance(getattr(answer, "choices", None), list):
        return answer
    content = answer if isinstance(answer, str) else json.dumps(answer.to_dict(mode="json"))
    raise invalid_response_error(content.encode(), None, "it has no choices")


def stream_call(client: OpenAI, ask: PromptCall) -> Stream[Any]:
    """Send the call as a stream. Read it with :func:`segments`, inside its ``with`` block."""
    if ask.form == "text":
        return client.completions.create(stream=True, **ask.create_arguments())
    return client.chat.completions.create(stream=True, **ask.create_arguments())


def segments(chunks: Stream[Any]) -> Iterator[list[OriginSegment]]:
    """Yield the text of each chunk that has text, split where its origin changes.

    The engine reports origins if ``origins`` is set in the call's extension. Other text counts as not
    drafted.
    """
    for chunk in chunks:
        found = _segments(chunk)
        if found:
            yield found


def _segments(chunk: BackendChunk) -> list[OriginSegment]:
    if not chunk.choices:
        return []
    choice = chunk.choices[0]
    extra = (choice.model_extra or {}).get("specclient")
    if isinstance(extra, Mapping):
        return [(str(text), bool(drafted)) for text, drafted in extra.get("segments", ())]
    text = plain_text(choice.delta.content) if isinstance(choice, ChunkChoice) else choice.text
    return [(text, False)] if text else []
