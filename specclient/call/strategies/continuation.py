"""Continuation of answers: requests whose answer continues a text, and the join of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specclient.call.request_params import DEFAULT_COMPLETION_TOKENS, request_param
from specclient.call.strategies.context import unsupported_parameter
from specclient.errors import UnsupportedParameterError
from specclient.providers.predictions import conflicting_params
from specclient.types.capabilities import Capabilities
from specclient.types.request import Request

#: Parameters that apply from the first token on, so that an answer begun by another model violates them.
CONFLICTS = ("tools", "functions", "response_format", "logprobs", "n", "echo", "audio", "modalities")


#: Returns a request whose answer continues a text.
ContinueText = Callable[[Request, str], Request]


def _as_last_turn(fields: Mapping[str, Any], body: Mapping[str, Any]) -> ContinueText:
    """Return a function that ends a conversation with a text, as the assistant's turn.

    Args:
        fields: further fields of that turn.
        body: further fields of the request's body.
    """

    def continue_text(request: Request, text: str) -> Request:
        messages = list(request.params.get("messages") or ())
        if ends_with_assistant(messages):
            messages.pop()
        turn = {"role": "assistant", "content": text, **fields}
        options = replace(request.options, body={**request.options.body, **body})
        return replace(request, params={**request.params, "messages": [*messages, turn]}, options=options)

    return continue_text


#: The request format of each value of :data:`specclient.types.capabilities.Prefill`. ``assistant``, a last
#: turn without a mark: Anthropic's older models, llama.cpp, OpenRouter; ``prefix``: Mistral, DeepSeek;
#: ``continue_final_message``: vLLM (which refuses both flags true), SGLang, TabbyAPI.
PREFILL_FORMS: Mapping[str, ContinueText] = {
    "assistant": _as_last_turn({}, {}),
    "prefix": _as_last_turn({"prefix": True}, {}),
    "continue_final_message": _as_last_turn(
        {}, {"continue_final_message": True, "add_generation_prompt": False}
    ),
}


def continuation_request(
    request: Request, capabilities: Capabilities, text: str, tokens: int
) -> Request | None:
    """Return the request that continues an answer.

    Args:
        capabilities: of the model that continues.
        text: the answer so far.
        tokens: its length, by which ``max_tokens`` is reduced.

    Returns:
        None where the model is not known to continue answers, or the request has conflicting parameters.
    """
    if conflicting_params(request, CONFLICTS):
        return None
    messages = request.params.get("messages")
    continue_text: ContinueText | None
    if request.operation == "completion":
        continue_text = None if capabilities.prefill is False else continue_prompt
    else:
        continue_text = PREFILL_FORMS.get(str(capabilities.prefill))
        if messages and ends_with_assistant(messages):  # the answer continues the caller's own beginning
            beginning = content_of(messages[-1])
            if not isinstance(beginning, str):
                return None
            text = beginning + text
    try:
        return None if continue_text is None else reduce_token_limit(continue_text(request, text), tokens)
    except UnsupportedParameterError:
        return None


def without_prefilled_turn(request: Request) -> Request:
    """Return a request without the assistant's last turn, if its conversation ends with one."""
    messages = list(request.params.get("messages") or ())
    if not ends_with_assistant(messages):
        return request
    return replace(request, params={**request.params, "messages": messages[:-1]})


def continue_prompt(request: Request, text: str) -> Request:
    """Return a text completion request whose prompt ends with a text.

    Raises:
        UnsupportedParameterError: the prompt is not one text.
    """
    prompt = request.params.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise unsupported_parameter(
            "strategy 'prefill' takes one prompt, as text; make one call for each prompt", "prompt"
        )
    return replace(request, params={**request.params, "prompt": prompt + text})


def token_limit(request: Request) -> int | None:
    """Return the most tokens that the answer may have; None where the request sets no limit."""
    limit = request_param(request, "max_completion_tokens") or request_param(request, "max_tokens")
    if limit is None and request.operation == "completion":
        return DEFAULT_COMPLETION_TOKENS
    return limit if isinstance(limit, int) else None


def reduce_token_limit(request: Request, tokens: int) -> Request:
    """Return a request whose token limit is reduced by the tokens of the beginning."""
    limit = token_limit(request)
    if limit is None:
        return request
    name = "max_completion_tokens" if request_param(request, "max_completion_tokens") else "max_tokens"
    body = {key: value for key, value in request.options.body.items() if key != name}
    params = {**request.params, name: limit - tokens}
    return replace(request, params=params, options=replace(request.options, body=body))


def content_of(message: Any) -> Any:
    """Return the content of a message, a mapping or an object."""
    return message.get("content") if isinstance(message, Mapping) else message.content


def ends_with_assistant(messages: list[Any]) -> bool:
    """Return whether a conversation ends with an assistant's turn."""
    if not messages:
        return False
    last = messages[-1]
    role = last.get("role") if isinstance(last, Mapping) else getattr(last, "role", None)
    return role == "assistant"


class PrefixJoiner:
    """Puts a prefix before a continuation exactly once, whether or not the server repeats it.

    Args:
        prefix: the text that the server was given.
        may_repeat: whether the server may send it again. If not, a continuation that begins with the same
            text is kept unchanged.
    """

    def __init__(self, prefix: str, *, may_repeat: bool = True) -> None:
        self._prefix = prefix
        self._buffer: str | None = "" if may_repeat else None
        self._prefix_sent = False

    def push(self, text: str, *, last: bool) -> str:
        """Return the text to output for a piece of the continuation.

        Args:
            last: whether this is the last piece.
        """
        output = "" if self._prefix_sent else self._prefix
        self._prefix_sent = True
        if self._buffer is None:
            return output + text
        self._buffer += text
        if not last and len(self._buffer) < len(self._prefix) and self._prefix.startswith(self._buffer):
            return output
        output += self._buffer.removeprefix(self._prefix)  # llama.cpp repeats it, but not in streams
        self._buffer = None
        return output
