"""Limit of the number of prompt log-probabilities in a response: a short request can ask for millions."""

from __future__ import annotations

from collections.abc import Sequence

from specclient.errors import BadRequestError
from specclient_local.api.openai_request.parser import EngineRequest

__all__ = ["LARGE", "check_prompt_logprobs", "max_prompt_logprobs"]

LARGE = 2000
"""Number of log-probabilities from which on a response is built in a thread; it takes about a millisecond."""


def max_prompt_logprobs(request: EngineRequest, prompts: Sequence[str | list[int]], context: int) -> int:
    """Return an upper bound of the number of prompt log-probabilities in a response.

    Args:
        request: the parsed request.
        prompts: its prompts, as texts or token ids.
        context: maximum number of tokens of a prompt.
    """
    top = request.params.prompt_logprobs
    if top is None:
        return 0
    return request.choices * (top + 1) * sum(_tokens(prompt, context) for prompt in prompts)


def _tokens(prompt: str | list[int], context: int) -> int:
    """Return an upper bound of the number of tokens of a prompt; a token has at least one byte."""
    if isinstance(prompt, str) and len(prompt) < context:
        return min(len(prompt.encode(errors="surrogatepass")), context)
    return min(len(prompt), context)


def check_prompt_logprobs(
    request: EngineRequest, prompts: Sequence[str | list[int]], context: int, most: int
) -> None:
    """Refuse a request whose response may have more than ``most`` prompt log-probabilities.

    The other arguments are those of :func:`max_prompt_logprobs`.

    Raises:
        BadRequestError: it may have more.
    """
    count = max_prompt_logprobs(request, prompts, context)
    if count <= most:
        return
    name = "echo" if request.prompt_logprobs is None else "prompt_logprobs"
    error = BadRequestError(
        f"{name} asks for up to {count} log-probabilities of prompts (tokens × choices × alternatives); "
        f"allowed are {most} in a response: send several requests, or raise prompt_logprobs in "
        "[server.requests]."
    )
    error.param, error.code = name, "too_many_logprobs"
    raise error
