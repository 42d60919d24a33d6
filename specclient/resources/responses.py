"""Turn ``client.responses`` into requests, and answers into what was asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from specclient.resources.base import Resource, build_request
from specclient.resources.table_resources import with_table_methods
from specclient.types.create_params import ResponseCreateParams
from specclient.types.inference_methods import RESPONSE
from specclient.types.params import NOT_GIVEN, CallOptions, NotGiven, Omit
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.structured.responses.stream import AsyncResponseStreamManager, ResponseStreamManager
    from specclient.types.responses import ParsedResponse


#: ``parse`` takes one parameter more than ``create``.
_PARSED = replace(RESPONSE, params=RESPONSE.params | {"verbosity"})


def _given(value: Any) -> bool:
    return not isinstance(value, NotGiven | Omit)


def _parsing(
    text_format: Any, params: Mapping[str, Any], *, parse_as: Any = NOT_GIVEN, stream: bool = False
) -> tuple[Request, Callable[[Any], Any], Any]:
    """Return the request of a parsed response, what parses it, and the tools as they are sent."""
    structured = importlib.import_module("specclient.structured")  # only who parses pays for it

    tools = structured.response_tools(params.get("tools", NOT_GIVEN))
    text = params.get("text", NOT_GIVEN)
    read_as = structured.output_format(params.get("input"), text, text_format, parse_as)
    text = structured.text_with_format(text, text_format)
    request = build_request(
        RESPONSE if stream else _PARSED, {**params, "tools": tools, "text": text, "stream": stream}
    )

    def parse(response: Any) -> Any:
        return structured.parse_response(response, text_format=read_as, input_tools=tools)

    return request, parse, tools


@with_table_methods("responses", is_async=True)
class AsyncResponses(Resource):
    """``client.responses``."""

    async def create(self, **params: Unpack[ResponseCreateParams]) -> Any:
        """Answer an input, with the tools and the state the provider keeps.

        Args:
            params: see :class:`ResponseCreateParams`; with ``stream=True``, events as they come.

        Returns:
            A ``Response``, or a stream of ``ResponseStreamEvent``.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        return await self.caller.call(build_request(RESPONSE, params))

    async def parse(
        self,
        *,
        text_format: Any = NOT_GIVEN,
        parse_as: Any = NOT_GIVEN,
        verbosity: str | NotGiven | Omit | None = NOT_GIVEN,
        **params: Any,
    ) -> ParsedResponse[Any]:
        """Answer an input in a given form.

        Args:
            text_format: a pydantic model, a dataclass, or a JSON schema; ``output_parsed`` is of it.
            parse_as: what to read the text as, where the input changes the format on the way; None for text.
            verbosity: how much to say: ``low``, ``medium`` or ``high``.
            params: as for :meth:`create`.
        """
        request, parse, _ = _parsing(text_format, {**params, "verbosity": verbosity}, parse_as=parse_as)
        answer: ParsedResponse[Any] = await self.caller.call(request, parse)
        return answer

    def stream(
        self, *, text_format: Any = NOT_GIVEN, response_id: Any = NOT_GIVEN, starting_after: Any = NOT_GIVEN,
        **params: Any,
    ) -> AsyncResponseStreamManager[Any]:  # fmt: skip
        """Stream a response as events, within ``async with``.

        Args:
            text_format: as for :meth:`parse`.
            response_id: of a response that is being made, to follow it instead of making one.
            starting_after: the number of the event after which to follow it.
            params: as for :meth:`create`.
        """
        from specclient.structured.responses.stream import AsyncResponseStreamManager  # noqa: PLC0415

        call, tools, after = _following(self, text_format, response_id, starting_after, params)
        return AsyncResponseStreamManager(
            call, text_format=text_format, input_tools=tools, starting_after=after
        )


@with_table_methods("responses", is_async=False)
class Responses(Resource):
    """``client.responses`` of the synchronous client."""

    def create(self, **params: Unpack[ResponseCreateParams]) -> Any:
        """Answer an input; see :meth:`AsyncResponses.create`."""
        return self.caller.call(build_request(RESPONSE, params))

    def parse(
        self,
        *,
        text_format: Any = NOT_GIVEN,
        parse_as: Any = NOT_GIVEN,
        verbosity: str | NotGiven | Omit | None = NOT_GIVEN,
        **params: Any,
    ) -> ParsedResponse[Any]:
        """Answer an input in a given form; see :meth:`AsyncResponses.parse`."""
        request, parse, _ = _parsing(text_format, {**params, "verbosity": verbosity}, parse_as=parse_as)
        answer: ParsedResponse[Any] = self.caller.call(request, parse)
        return answer

    def stream(
        self, *, text_format: Any = NOT_GIVEN, response_id: Any = NOT_GIVEN, starting_after: Any = NOT_GIVEN,
        **params: Any,
    ) -> ResponseStreamManager[Any]:  # fmt: skip
        """Stream a response as events, within ``with``; see :meth:`AsyncResponses.stream`."""
        from specclient.structured.responses.stream import ResponseStreamManager  # noqa: PLC0415

        call, tools, after = _following(self, text_format, response_id, starting_after, params)
        return ResponseStreamManager(call, text_format=text_format, input_tools=tools, starting_after=after)


def _following(
    resource: Any, text_format: Any, response_id: Any, starting_after: Any, params: Mapping[str, Any]
) -> tuple[Callable[[], Any], Any, int | None]:
    """Return what opens the stream of a new response or of one that is being made, and what it starts after.

    Raises:
        ValueError: for arguments of both, or of neither.
    """
    after = starting_after if _given(starting_after) else None
    making = {name for name, value in params.items() if _given(value)} & {"input", "model"}
    if not _given(response_id):
        if after is not None:
            raise ValueError("starting_after is for following a response; give its response_id, too")
        request, _, tools = _parsing(text_format, params, stream=True)
        return lambda: resource.caller.call(request), tools, None
    if making:
        raise ValueError(
            f"response_id follows a response that exists, so {sorted(making)} cannot be given beside it"
        )
    options = {name: params[name] for name in CallOptions.__annotations__ if name in params}
    if after is not None:
        options["starting_after"] = after
    tools = params.get("tools", NOT_GIVEN)
    return lambda: resource.retrieve(response_id, stream=True, **options), tools, after
