"""Turn OpenAI parameters into what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeGuard

from specclient.errors import UnsupportedParameterError
from specclient.types.request import Request
from specclient_local.checks import bad_parameter
from specclient_local.params import MAX_LOGPROBS, SamplingParams

COMPLETION_MAX_TOKENS = 16
"""``max_tokens`` of a text completion that names none: the API's own default."""

#: Parameters that leave the text as it is; accepted and unused.
NO_EFFECT = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
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
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "return_token_ids": (False,),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}

_DIRECT = ("temperature", "top_p", "top_k", "seed", "stop")
_OWN = ("max_tokens", "max_completion_tokens", "prediction", "specclient")
_PROMPTS = {"chat": "messages", "completion": "prompt"}
_EXTENSION = ("draft_length", "method", "origins")

#: Parameters that are told of beside the text, by operation.
_TOLD = {
    "chat": frozenset({"logprobs", "top_logprobs"}),
    "completion": frozenset({"echo", "logprobs", "prompt_logprobs", "return_token_ids"}),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the engine's terms.

    Attributes:
        messages: of a chat, text only; ``prompt``: of a text completion. The other one is None.
        params: checked.
        logprobs: alternatives told with each token of the text; None for no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt, in vLLM's form.
        echo: whether the text begins with the prompt.
        token_ids: whether the answer tells them.
        origins: whether chunks tell which text the draft proposed.
        stream_usage: whether the stream ends with a usage chunk.
    """

    messages: list[dict[str, Any]] | None
    prompt: str | list[int] | None
    params: SamplingParams
    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool
    token_ids: bool
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
    _refuse(given, required, model, _TOLD[request.operation])
    extension = given.get("specclient", {})
    if not isinstance(extension, Mapping) or not set(extension) <= set(_EXTENSION):
        raise bad_parameter("specclient", extension, f"an object with {', '.join(_EXTENSION)}")
    chat = request.operation == "chat"
    default = None if chat else COMPLETION_MAX_TOKENS
    limit = given.get("max_completion_tokens", given.get("max_tokens", default))
    logprobs = _chat_logprobs(given) if chat else _count(given, "logprobs")
    echo, scored = _flag(given, "echo"), _count(given, "prompt_logprobs")
    # What is echoed is told of like what is new; and an answer without new tokens is the prompt read.
    read_for = max((n for n in (scored, logprobs if echo else None) if n is not None), default=None)
    sampling: dict[str, Any] = {"temperature": 1.0} | {n: given[n] for n in _DIRECT if n in given}
    return Asked(
        messages=_messages(given["messages"]) if chat else None,
        prompt=None if chat else _prompt(given["prompt"], model),
        params=SamplingParams(
            max_tokens=limit,
            draft_length=extension.get("draft_length"),
            method=extension.get("method"),
            logprobs=logprobs,
            prediction=_prediction(given.get("prediction")),
            prompt_logprobs=0 if echo and read_for is None and limit == 0 else read_for,
            **sampling,
        ),
        logprobs=logprobs,
        prompt_logprobs=scored,
        echo=echo,
        token_ids=_flag(given, "return_token_ids"),
        origins=bool(extension.get("origins", False)),
        stream_usage=bool((given.get("stream_options") or {}).get("include_usage", False)),
    )


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise bad_parameter(name, value, "true or false")
    return value


def _count(given: Mapping[str, Any], name: str) -> int | None:
    """Return how many alternatives are asked for, or None."""
    value = given.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and 0 <= value <= MAX_LOGPROBS):
        raise bad_parameter(name, value, f"an integer from 0 to {MAX_LOGPROBS}")
    return value


def _chat_logprobs(given: Mapping[str, Any]) -> int | None:
    top = _count(given, "top_logprobs")
    if _flag(given, "logprobs"):
        return top or 0
    if top:
        raise bad_parameter("top_logprobs", top, "0, or to ask for logprobs=true as well")
    return None


def _refuse(given: Mapping[str, Any], required: str, model: str, told: Set[str]) -> None:
    known = {*_DIRECT, *NO_EFFECT, *told, required, *_OWN}
    for name, value in given.items():
        neutral = NEUTRAL.get(name, ())
        if name in known or any(_same(value, unused) for unused in neutral):
            continue
        allowed = ", ".join(repr(v) for v in neutral)
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
    if _is_text(part):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise bad_parameter(
        f"messages[{message}].content", kind, "parts of type 'text'; the local models read text only"
    )


def _is_text(part: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _prediction(prediction: object) -> str | None:
    """Return the text that the user expects."""
    if prediction is None:
        return None
    if isinstance(prediction, Mapping) and prediction.get("type") == "content":
        content = prediction.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, list | tuple) and all(_is_text(part) for part in content):
            return "".join(part["text"] for part in content)
    allowed = '{"type": "content", "content": …} with a string or a list of text parts'
    raise bad_parameter("prediction", prediction, allowed)
