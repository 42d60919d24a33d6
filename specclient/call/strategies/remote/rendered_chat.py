"""A chat as a completion: its prompt rendered by the target's chat template, which the provider names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio.to_thread

from specclient.call.request_params import request_param
from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.remote.draft_client import TargetFallbackError
from specclient.chat_format.checkpoint import load_chat_template
from specclient.chat_format.messages import UnrenderedMessageError, template_tools
from specclient.chat_format.template import ChatTemplate
from specclient.chat_format.tool_calls import ToolCallFormat, tool_call_format
from specclient.errors import BadRequestError
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request

#: Parameters that chats and completions have in common.
_SHARED = ("temperature", "top_p", "top_k", "seed", "stop", "user", "stream_options", "return_token_ids")


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A chat whose prompt is known as text.

    Attributes:
        request: the caller's own.
        prompt: the text, special tokens included.
        template: rendered it.
        call_format: how the model writes tool calls; None where the request has no tools.
        tool_names: of the request's tools.
    """

    request: Request
    prompt: str
    template: ChatTemplate
    call_format: ToolCallFormat | None = None
    tool_names: frozenset[str] = frozenset()

    @property
    def completion(self) -> Request:
        """The request as a completion of the prompt; it has a token limit only if the chat has one."""
        limit = request_param(self.request, "max_completion_tokens") or request_param(
            self.request, "max_tokens"
        )
        params = {name: request_param(self.request, name) for name in _SHARED}
        params |= {"prompt": self.prompt, "max_tokens": limit}
        given = {name: value for name, value in params.items() if value is not None}
        options = replace(self.request.options, body={})
        return replace(self.request, method=COMPLETION, params=given, options=options)


async def render_chat(context: StrategyContext) -> RenderedChat:
    """Render the chat of a request that :func:`.eligibility.ineligibility` allows.

    Raises:
        ConfigurationError: there is no such template, or it is no template.
        UnsupportedParameterError, BadRequestError: it cannot render these messages, or these tools.
        TargetFallbackError: the same, where the strategy is ``auto``: the target renders the chat itself.
    """
    assert context.template is not None
    template = await anyio.to_thread.run_sync(load_chat_template, context.template)
    try:
        return await anyio.to_thread.run_sync(_render, context, template)
    except (UnrenderedMessageError, BadRequestError) as error:
        if context.strategy.kind == "auto":
            raise TargetFallbackError(str(error)) from None
        if isinstance(error, BadRequestError):
            raise
        name = "tools" if str(error).startswith("tools") else "messages"
        raise unsupported_parameter(
            f"strategy 'remote' cannot be used: {error}; or leave the strategy out", name
        ) from None


def _render(context: StrategyContext, template: ChatTemplate) -> RenderedChat:
    request = context.request
    messages, tools = request_param(request, "messages"), request_param(request, "tools")
    more = request_param(request, "chat_template_kwargs")
    prompt = template.render(messages, tools, more=more if isinstance(more, Mapping) else None)
    if not tools:
        return RenderedChat(request, prompt, template)
    form = tool_call_format(template.text_for(tools), context.target_label)
    if form.name == "mistral":  # completions omit special tokens, and with them the mark of a call
        raise UnrenderedMessageError(
            "tools are called by the special token [TOOL_CALLS], which completions leave out"
        )
    names: Any = (tool["function"]["name"] for tool in template_tools(tools))
    return RenderedChat(request, prompt, template, form, frozenset(names))
