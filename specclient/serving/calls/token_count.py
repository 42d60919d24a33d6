"""The number of tokens of a prompt, without a call: counted by an engine, or estimated."""

from __future__ import annotations

from specclient.openai_http.errors import ServingError
from specclient.providers import Endpoint
from specclient.routing.router import AUTO
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.calls.gate import CallGate
from specclient.types.backend import SupportsTokenCount
from specclient.types.request import Request

__all__ = ["count_route", "counted_tokens"]


def count_route(gate: CallGate, request: Request) -> tuple[str, str]:
    """Return the provider and the model whose tokens are counted; for ``auto``, those of a candidate.

    Args:
        gate: names the providers.
        request: an authorized request, with its permit.

    Raises:
        NotFoundError: the key may not use the model.
        ServingError: 400, there is no candidate.
    """
    permit, places = request.options.permit, gate.pipeline.destinations
    if places.resolve_request(request) == AUTO:
        candidates = gate.pipeline.router.candidates
        usable = candidates if permit is None else permit.usable(candidates)
        if not usable:
            raise ServingError(400, "model 'auto' has no candidate; name a model", "model", "no_route")
        provider, _, inner = usable[0].partition("/")
    else:
        provider, inner = places.split_request(request)
    if permit is not None:
        permit.check(provider, inner)
    return provider, inner


#: Bytes of a body up to which an engine counts exactly. Longer ones exceed most contexts, and a tokenizer
#: takes a second of processor time and much memory for each megabyte.
_EXACT = 2**20


async def counted_tokens(gate: CallGate, request: Request, size: int, provider: str, model: str) -> int:
    """Return the tokens of a request's prompt: exact for a model of an engine, else an estimate.

    Args:
        gate: names the providers.
        request: the chat completion.
        size: the bytes of the request's body.
        provider, model: the route; see :func:`count_route`.

    Raises:
        BadRequestError: the engine does not accept the request.
    """
    place = gate.pipeline.destinations.get(provider)

    def count() -> int:
        from specclient import tokens  # noqa: PLC0415 - used only by this route

        counts = not isinstance(place, Endpoint) and size <= _EXACT
        if counts and isinstance(place, SupportsTokenCount):
            exact = place.count(request, model)
            if exact is not None:
                return exact
        return tokens.count_prompt(request, model).tokens

    return await run_in_thread(count)
