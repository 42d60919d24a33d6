"""The preparation of a parsed request for its engine: prompts as tokens, grammar of tool calls, response."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from specclient.chat_format.tool_calls import ToolCallFormat, tool_call_format
from specclient.types.request import Request
from specclient.types.request_limits import RequestLimits
from specclient_local.api.openai_request.logprob_bounds import check_prompt_logprobs
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.prepared_request import PreparedRequest
from specclient_local.api.tools.call_grammar import ToolSettings, tool_call_grammar
from specclient_local.loading.configured_models import ConfiguredModel
from specclient_local.request.params import SamplingParams, prompt_limit

if TYPE_CHECKING:
    from specclient_local.engine.engine import Engine
    from specclient_local.model.tokenizer import Tokenizer

__all__ = ["encoded_prompts", "prepare_request"]


def prepare_request(
    parsed: EngineRequest,
    request: Request,
    model: str,
    engine: Engine,
    configured: ConfiguredModel,
    *,
    limits: RequestLimits,
    created: int,
) -> PreparedRequest:
    """Tokenize the prompts of a request, and check them. Runs in a thread, as long prompts take long.

    Args:
        parsed: the request in the engine's terms.
        request: the request as the caller sent it.
        model: the name of the model, for the response and for errors.
        engine: runs the request.
        configured: the model's configuration.
        limits: bounds of requests.
        created: seconds since 1970, for the response.

    Raises:
        BadRequestError: a parameter or a prompt is invalid.
        ContextOverflowError: a prompt is too long.
    """
    from specclient_local.api.openai_response.response import ResponseBuilder  # noqa: PLC0415 - imports the tokenizers library

    prompts, call_format = parsed.prompts, None
    params = configured.with_defaults(parsed.params)
    if parsed.messages is not None:
        tools = () if parsed.tools is None else parsed.tools.definitions
        most = prompt_limit(engine.context, params)
        prompts = (engine.tokenizer.chat(parsed.messages, tools, most),)
    if parsed.tools is not None:
        call_format, params = _constrain_calls(parsed.tools, params, engine.tokenizer, model)
    elif not parsed.special_tokens:
        for prompt in parsed.prompts:
            if isinstance(prompt, str):
                engine.tokenizer.check_length("prompt", prompt, prompt_limit(engine.context, params))
        prompts = encoded_prompts(parsed, engine.tokenizer)
    check_prompt_logprobs(parsed, prompts, engine.context, limits.prompt_logprobs)
    prefix = "chatcmpl" if request.operation == "chat" else "cmpl"
    builder = ResponseBuilder(
        operation=request.operation,
        id=f"{prefix}-{uuid.uuid4().hex}",
        created=created,
        model=model,
        request=parsed,
        tokenizer=engine.tokenizer,
        call_format=call_format,
        new_id=lambda: uuid.uuid4().hex,
    )
    prepared = PreparedRequest(engine, configured, builder, prompts, params, request.options.owner)
    prepared.check_prompts()
    return prepared


def encoded_prompts(request: EngineRequest, tokenizer: Tokenizer) -> tuple[list[int], ...]:
    """Return the prompts of a completion as token ids."""
    begins = request.special_tokens
    return tuple(
        tokenizer.encode(each, begins=begins) if isinstance(each, str) else each for each in request.prompts
    )


def _constrain_calls(
    tools: ToolSettings, params: SamplingParams, tokenizer: Tokenizer, model: str
) -> tuple[ToolCallFormat, SamplingParams]:
    """Return a model's tool call format, and parameters with the grammar that enforces it.

    Raises:
        UnsupportedParameterError: the chat template supports no tools, or its format is unknown.
    """
    call_format = tool_call_format(tokenizer.template(tools.definitions), f"local/{model}")
    return call_format, replace(params, grammar=tool_call_grammar(tools, call_format, tokenizer.added))
