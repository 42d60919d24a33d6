"""A bound on the log-probabilities of prompts in one response, which cost little to ask for."""

from __future__ import annotations

from collections.abc import Sequence

from specclient.errors import BadRequestError
from specclient_local.api.openai_request.parser import EngineRequest

__all__ = ["LARGE", "check_prompt_logprobs", "prompt_logprobs"]

LARGE = 2000
"""Log-probabilities that become a part of a response in about a millisecond."""


def prompt_logprobs(request: EngineRequest, prompts: Sequence[str | list[int]], context: int) -> int:
    """Return the number of log-probabilities of prompts in a response, at most.

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
    """Return the number of tokens of a prompt, at most."""
    if isinstance(prompt, str) and len(prompt) < context:
        return min(len(prompt.encode(errors="surrogatepass")), context)
    return min(len(prompt), context)


def check_prompt_logprobs(
    request: EngineRequest, prompts: Sequence[str | list[int]], context: int, most: int
) -> None:
    """Refuse a request whose response may have more than ``most`` log-probabilities of prompts.

    Raises:
        BadRequestError: it may have more.
    """
    count = prompt_logprobs(request, prompts, context)
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
