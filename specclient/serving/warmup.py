"""Turn the names of an engine's models into loaded engines, before the first request waits for it."""

from __future__ import annotations

from collections.abc import Iterable

from specclient.client.async_client import AsyncOpenAI
from specclient.providers import Endpoint
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request


async def preload(client: AsyncOpenAI, models: Iterable[str]) -> None:
    """Load what engines in this process need for some models, by asking each for one token.

    Args:
        models: as ``provider/model``; those of hosted providers need nothing.

    Raises:
        OpenAIError: an unknown model, or one that cannot be loaded.
    """
    places = client.pipeline.destinations
    for name in models:
        head, model = places.split(name)
        place = places.get(head)
        if not isinstance(place, Endpoint):  # not through the pipeline: nobody asked for this answer
            await place.complete(Request(COMPLETION, name, {"prompt": "x", "max_tokens": 1}), model)
