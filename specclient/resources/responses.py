"""The resource ``client.responses``: create, parse and stream responses."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from specclient.resources.base import Resource, build_request
from specclient.resources.signatures import with_signature
from specclient.resources.table_resources import with_table_methods
from specclient.resources.traced_methods import traceable
from specclient.types.create_params import ResponseCreateParams
from specclient.types.inference_methods import RESPONSE
from specclient.types.params import NOT_GIVEN, CallOptions, NotGiven, Omit, is_given
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.structured.responses.stream import AsyncResponseStreamManager, ResponseStreamManager
    from specclient.types.responses import ParsedResponse

#: `openai` has a package here, whose modules have no files here; see :mod:`specclient.runtime.module_paths`.
__path__: list[str] = []


#: ``parse`` has one more parameter than ``create``.
_PARSED = replace(RESPONSE, params=RESPONSE.params | {"verbosity"})


def _wire_params(
    text_format: Any, params: Mapping[str, Any], parse_as: Any = NOT_GIVEN
) -> tuple[dict[str, Any], Any, Any]:
    """Return the parameters of :meth:`Responses.create` for a parsed response.

    Returns:
        The parameters, the tools as sent, and the type that the text is parsed as.
    """
    structured = importlib.import_module("specclient.structured")  # slow to import, and rarely needed

    tools = structured.response_tools(params.get("tools", NOT_GIVEN))
    text = params.get("text", NOT_GIVEN)
    read_as = structured.output_format(params.get("input"), text, text_format, parse_as)
    text = structured.text_with_format(text, text_format)
    return {**params, "tools": tools, "text": text}, tools, read_as


def _parsing(
    text_format: Any, params: Mapping[str, Any], parse_as: Any
) -> tuple[Request, Callable[[Any], Any]]:
    """Return the request of a parsed response, and the parser of the response."""
    wire, tools, read_as = _wire_params(text_format, params, parse_as)

    def parse(response: Any) -> Any:
        structured = importlib.import_module("specclient.structured")
        return structured.parse_response(response, text_format=read_as, input_tools=tools)

    return build_request(_PARSED, {**wire, "stream": False}), parse


@with_table_methods("responses", is_async=True)
class AsyncResponses(Resource):
    """``client.responses``."""

    @traceable
    @with_signature("", ResponseCreateParams)
    async def create(self, **params: Unpack[ResponseCreateParams]) -> Any:
        """Create a response to an input; the provider may run tools and store the conversation.

        Args:
            params: see :class:`ResponseCreateParams`.

        Returns:
            A ``Response``; with ``stream=True``, a stream of ``ResponseStreamEvent``.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        return await self.caller.call(build_request(RESPONSE, params))

    @traceable
    @with_signature("", ResponseCreateParams, adds="parse_as text_format verbosity")
    async def parse(
        self,
        *,
        text_format: Any = NOT_GIVEN,
        parse_as: Any = NOT_GIVEN,
        verbosity: str | NotGiven | Omit | None = NOT_GIVEN,
        **params: Any,
    ) -> ParsedResponse[Any]:
        """Create a response and parse its text as ``text_format``.

        Args:
            text_format: a pydantic model, a dataclass, or a JSON schema: the type of ``output_parsed``.
            parse_as: the type to parse the text as if the input changes the format; None leaves it text.
            verbosity: the length of the response: ``low``, ``medium`` or ``high``.
            params: as for :meth:`create`.
        """
        request, parse = _parsing(text_format, {**params, "verbosity": verbosity}, parse_as)
        answer: ParsedResponse[Any] = await self.caller.call(request, parse)
        return answer

    @with_signature("", ResponseCreateParams, adds="response_id starting_after text_format", drops="stream")
    def stream(
        self, *, text_format: Any = NOT_GIVEN, response_id: Any = NOT_GIVEN, starting_after: Any = NOT_GIVEN,
        **params: Any,
    ) -> AsyncResponseStreamManager[Any]:  # fmt: skip
        """Stream a response as events, in an ``async with`` block.

        Args:
            text_format: as for :meth:`parse`.
            response_id: the id of an existing response to stream, instead of creating a new one.
            starting_after: the number of the event after which the stream starts.
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

    @traceable
    @with_signature("", ResponseCreateParams)
    def create(self, **params: Unpack[ResponseCreateParams]) -> Any:
        """Create a response to an input; see :meth:`AsyncResponses.create`."""
        return self.caller.call(build_request(RESPONSE, params))

    @traceable
    @with_signature("", ResponseCreateParams, adds="parse_as text_format verbosity")
    def parse(
        self,
        *,
        text_format: Any = NOT_GIVEN,
        parse_as: Any = NOT_GIVEN,
        verbosity: str | NotGiven | Omit | None = NOT_GIVEN,
        **params: Any,
    ) -> ParsedResponse[Any]:
        """Create a response and parse it; see :meth:`AsyncResponses.parse`."""
        request, parse = _parsing(text_format, {**params, "verbosity": verbosity}, parse_as)
        answer: ParsedResponse[Any] = self.caller.call(request, parse)
        return answer

    @with_signature("", ResponseCreateParams, adds="response_id starting_after text_format", drops="stream")
    def stream(
        self, *, text_format: Any = NOT_GIVEN, response_id: Any = NOT_GIVEN, starting_after: Any = NOT_GIVEN,
        **params: Any,
    ) -> ResponseStreamManager[Any]:  # fmt: skip
        """Stream a response as events, in a ``with`` block; see :meth:`AsyncResponses.stream`."""
        from specclient.structured.responses.stream import ResponseStreamManager  # noqa: PLC0415

        call, tools, after = _following(self, text_format, response_id, starting_after, params)
        return ResponseStreamManager(call, text_format=text_format, input_tools=tools, starting_after=after)


def _following(
    resource: Any, text_format: Any, response_id: Any, starting_after: Any, params: Mapping[str, Any]
) -> tuple[Callable[[], Any], Any, int | None]:
    """Return the parts of a stream of a new or of an existing response.

    Returns:
        The function that opens the stream, the tools, and the number of the event to start after.

    Raises:
        ValueError: the arguments mix a new response with an existing one.
    """
    after = starting_after if is_given(starting_after) else None
    making = {name for name, value in params.items() if is_given(value)} & {"input", "model"}
    if not is_given(response_id):
        if after is not None:
            raise ValueError("starting_after is for following a response; give its response_id, too")
        wire, tools, _ = _wire_params(text_format, params)
        return partial(resource.create, **wire, stream=True), tools, None
    if making:
        raise ValueError(f"response_id follows a response that exists, so {sorted(making)} cannot be set")
    options = {name: params[name] for name in CallOptions.__annotations__ if name in params}
    if after is not None:
        options["starting_after"] = after
    tools = params.get("tools", NOT_GIVEN)
    return lambda: resource.retrieve(response_id, stream=True, **options), tools, after


def __getattr__(name: str) -> Any:
    """Return the class of another resource in the package of this name, such as ``AsyncInputItems``."""
    return importlib.import_module("specclient.resources.module_tree").find("responses", name)
