"""Turn OpenAI parameters into what the engine takes, and what it gives back into OpenAI objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specclient.errors import UnsupportedParameterError
from specclient.types.backend import Answer, Chunk
from specclient.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from specclient.types.chat.chat_completion import Choice
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_chunk import ChoiceDelta
from specclient.types.completion import Completion, CompletionChoice
from specclient.types.request import Request
from specclient.types.usage import CompletionUsage
from specclient_local.config import SamplingParams, bad_parameter

if TYPE_CHECKING:
    from specclient_local.answer import Generation, Piece

COMPLETION_MAX_TOKENS = 16
"""``max_tokens`` of a text completion that names none: the API's own default."""

#: Parameters that leave the text as it is; accepted and unused.
NO_EFFECT = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)

#: Parameters that would change the answer, with the values that do not.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}

_DIRECT = ("temperature", "top_p", "top_k", "seed", "stop")
_PROMPTS = {"chat": "messages", "completion": "prompt"}
_EXTENSION = ("draft_length", "method", "origins")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the engine's terms.

    Attributes:
        messages: of a chat, text only; ``prompt``: of a text completion. The other one is None.
        params: checked.
        origins: whether chunks tell which text the draft proposed.
        stream_usage: whether the stream ends with a usage chunk.
    """

    messages: list[dict[str, Any]] | None
    prompt: str | list[int] | None
    params: SamplingParams
    origins: bool
    stream_usage: bool


def read(request: Request, model: str) -> Asked:
    """Read a request.

    Args:
        request: as the pipeline hands it in.
        model: for messages only.

    Raises:
        BadRequestError: a parameter with an unusable value.
        UnsupportedParameterError: one that would change the answer in a way the engine cannot.
    """
    given = {name: value for name, value in request.params.items() if value is not None}
    required = _PROMPTS[request.operation]
    if required not in given:
        raise bad_parameter(required, None, f"a value: a {request.operation} needs {required}")
    _refuse(given, required, model)
    extension = given.get("specclient", {})
    if not isinstance(extension, Mapping) or not set(extension) <= set(_EXTENSION):
        raise bad_parameter("specclient", extension, f"an object with {', '.join(_EXTENSION)}")
    default = None if request.operation == "chat" else COMPLETION_MAX_TOKENS
    sampling: dict[str, Any] = {"temperature": 1.0} | {n: given[n] for n in _DIRECT if n in given}
    chat = request.operation == "chat"
    return Asked(
        messages=_messages(given["messages"]) if chat else None,
        prompt=None if chat else _prompt(given["prompt"], model),
        params=SamplingParams(
            max_tokens=given.get("max_completion_tokens", given.get("max_tokens", default)),
            draft_length=extension.get("draft_length"),
            method=extension.get("method"),
            **sampling,
        ),
        origins=bool(extension.get("origins", False)),
        stream_usage=bool((given.get("stream_options") or {}).get("include_usage", False)),
    )


def _refuse(given: Mapping[str, Any], required: str, model: str) -> None:
    known = {*_DIRECT, *NO_EFFECT, required, "max_tokens", "max_completion_tokens", "specclient"}
    for name, value in given.items():
        if name in known or any(_same(value, neutral) for neutral in NEUTRAL.get(name, ())):
            continue
        allowed = ", ".join(repr(v) for v in NEUTRAL.get(name, ()))
        hint = f"allowed is {allowed}, or to leave it out" if allowed else "leave it out"
        error = UnsupportedParameterError(f"{name}={value!r} is not supported by local/{model}; {hint}.")
        error.param = name
        raise error


def _same(value: object, neutral: object) -> bool:
    """Whether two values are one in JSON, where 0 and false differ."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _prompt(prompt: object, model: str) -> str | list[int]:
    """Return text or ids; a list of one prompt is that prompt."""
    if isinstance(prompt, list | tuple) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            error = UnsupportedParameterError(
                f"prompt holds {len(prompt)} prompts; local/{model} takes one a call: make one call each."
            )
            error.param = "prompt"
            raise error
        return _prompt(prompt[0], model)
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | tuple) and all(
        isinstance(i, int) and not isinstance(i, bool) for i in prompt
    ):
        return list(prompt)
    raise bad_parameter("prompt", prompt, "a string, a list of token ids, or a list of one of these")


def _messages(messages: object) -> list[dict[str, Any]]:
    """Join text parts, so that any template understands them; other fields are kept."""
    if not isinstance(messages, list | tuple) or not messages:
        raise bad_parameter("messages", messages, "a non-empty list of objects")
    plain: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise bad_parameter(f"messages[{i}]", message, "an object with role and content")
        content = message.get("content")
        if isinstance(content, list | tuple):
            content = "".join(_part(part, i) for part in content)
        if not isinstance(content, str):
            raise bad_parameter(f"messages[{i}].content", content, "a string or a list of text parts")
        plain.append({**message, "content": content})
    return plain


def _part(part: object, message: int) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise bad_parameter(
        f"messages[{message}].content", kind, "parts of type 'text'; the local models read text only"
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """How the answers to one request look.

    Attributes:
        id: ``chatcmpl-…`` or ``cmpl-…``.
        created: seconds since 1970.
        model: as the backend lists it.
    """

    operation: str
    id: str
    created: int
    model: str

    def whole(self, generation: Generation) -> Answer:
        """Return the answer in one object."""
        reason, usage = generation.finish_reason, usage_of(generation)
        head: dict[str, Any] = {"id": self.id, "created": self.created, "model": self.model}
        if self.operation == "chat":
            message = ChatCompletionMessage(content=generation.text, role="assistant", refusal=None)
            choice = Choice(index=0, message=message, finish_reason=reason, logprobs=None)
            return ChatCompletion(choices=[choice], usage=usage, object="chat.completion", **head)
        text = CompletionChoice(index=0, text=generation.text, finish_reason=reason, logprobs=None)
        return Completion(choices=[text], usage=usage, object="text_completion", **head)

    def role(self) -> Chunk:
        """Return a chat stream's first chunk."""
        return self._chunk(ChoiceDelta(role="assistant", content=""), "", None, {})

    def text(self, piece: Piece, *, origins: bool) -> Chunk:
        """Return the chunk of some text."""
        extra = {"specclient": {"segments": [list(s) for s in piece.segments]}} if origins else {}
        return self._chunk(ChoiceDelta(content=piece.text), piece.text, None, extra)

    def finish(self, reason: str) -> Chunk:
        """Return the chunk that says why the answer ends."""
        return self._chunk(ChoiceDelta(), "", reason, {})

    def usage(self, generation: Generation) -> Chunk:
        """Return the last chunk: no choices, only usage."""
        head: dict[str, Any] = {"id": self.id, "created": self.created, "model": self.model}
        usage = usage_of(generation)
        if self.operation == "chat":
            return ChatCompletionChunk(choices=[], usage=usage, object="chat.completion.chunk", **head)
        return Completion(choices=[], usage=usage, object="text_completion", **head)

    def _chunk(self, delta: ChoiceDelta, text: str, reason: str | None, extra: dict[str, Any]) -> Chunk:
        head: dict[str, Any] = {"id": self.id, "created": self.created, "model": self.model}
        if self.operation == "chat":
            part = ChunkChoice(index=0, delta=delta, finish_reason=reason, **extra)
            return ChatCompletionChunk(choices=[part], object="chat.completion.chunk", **head)
        choice = CompletionChoice(index=0, text=text, finish_reason=reason, **extra)
        return Completion(choices=[choice], object="text_completion", **head)


def usage_of(generation: Generation) -> CompletionUsage:
    """Return the token counts of an answer."""
    new = len(generation.token_ids)
    return CompletionUsage(
        prompt_tokens=generation.prompt_tokens,
        completion_tokens=new,
        total_tokens=generation.prompt_tokens + new,
    )
