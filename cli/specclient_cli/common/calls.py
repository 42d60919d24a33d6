"""Turn a text and options into one call of the client, and its answer into pieces of text and a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import click

from specclient.call.stream import Stream
from specclient.client.sync_client import OpenAI
from specclient.types.backend import BackendChunk
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.route import Policy

LOCAL = "local"

#: Tokens of a continued text where no number is given; the API's own default is 16.
DEFAULT_TEXT_TOKENS = 128

CallForm = Literal["text", "chat"]
OriginSegment = tuple[str, bool]
"""Text, and whether it was drafted and accepted."""


@dataclass(frozen=True, slots=True)
class PromptCall:
    """One call before it is made.

    Attributes:
        form: ``text`` continues a prompt, ``chat`` answers messages.
        params: of the API; ``extension``: of the local engine alone.
    """

    model: str
    form: CallForm
    params: Mapping[str, Any]
    policy: Policy | None = None
    extension: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """Return everything but ``stream_call`` as ``create`` takes it."""
        body = {"specclient": dict(self.extension)} if self.extension else None
        ours = {"policy": self.policy, "tags": dict(self.tags), "extra_body": body}
        return {"model": self.model, **self.params, **ours}


def prompt_form(model: str) -> CallForm:
    """Return how a model is best asked: local ones continue text, all others answer chats."""
    return "text" if model.startswith(f"{LOCAL}/") else "chat"


def sampling_params(form: CallForm, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's parameters for the sampling options of a command line.

    Args:
        given: ``max_tokens``, ``temperature``, ``top_p``, ``seed``, ``stop``; None or empty is not given.
    """
    params = {name: value for name, value in given.items() if value not in (None, (), [])}
    if "stop" in params:
        params["stop"] = list(params["stop"])
    if form == "text":
        params.setdefault("max_tokens", DEFAULT_TEXT_TOKENS)
    if model.startswith(f"{LOCAL}/"):
        params.setdefault("temperature", 0.0)
    return params


def extension(model: str, draft_length: int | None) -> dict[str, Any]:
    """Return what only the local engine understands.

    Raises:
        click.UsageError: a draft length for a model that runs elsewhere.
    """
    if draft_length is None:
        return {}
    if not model.startswith(f"{LOCAL}/"):
        raise click.UsageError(
            f"--draft-length is for local models; {model} drafts as its server was set up. "
            "Name one with -m local/…, such as local/demo."
        )
    return {"draft_length": draft_length}


def content(form: CallForm, text: str, *, system: str | None = None) -> dict[str, Any]:
    """Return a text as the prompt, or as the user's message, of a call."""
    if form == "text":
        return {"prompt": text}
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, {"role": "user", "content": text}]}


def complete_call(client: OpenAI, ask: PromptCall) -> tuple[str, Call]:
    """Make the call and return its text and record."""
    if ask.form == "text":
        completion = client.completions.create(**ask.keywords())
        return completion.choices[0].text if completion.choices else "", completion.meta
    answer: ChatCompletion = client.chat.completions.create(**ask.keywords())
    return plain_text(answer.choices[0].message.content) if answer.choices else "", answer.meta


def stream_call(client: OpenAI, ask: PromptCall) -> Stream[Any]:
    """Open the call as a stream; read it with :func:`segments`, and leave it through its ``with`` block."""
    if ask.form == "text":
        return client.completions.create(stream=True, **ask.keywords())
    return client.chat.completions.create(stream=True, **ask.keywords())


def segments(chunks: Stream[Any]) -> Iterator[list[OriginSegment]]:
    """Yield the text of each chunk that has some, cut where its origin changes.

    The engine tells origins when asked (``origins`` of its extension); other text counts as not drafted.
    """
    for chunk in chunks:
        found = _segments(chunk)
        if found:
            yield found


def _segments(chunk: BackendChunk) -> list[OriginSegment]:
    if not chunk.choices:
        return []
    choice = chunk.choices[0]
    told = (choice.model_extra or {}).get("specclient")
    if isinstance(told, Mapping):
        return [(str(text), bool(drafted)) for text, drafted in told.get("segments", ())]
    text = plain_text(choice.delta.content) if isinstance(choice, ChunkChoice) else choice.text
    return [(text, False)] if text else []
