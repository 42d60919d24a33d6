"""Loading of local models before the first request."""

from __future__ import annotations

from collections.abc import Iterable

from specclient.client.async_client import AsyncOpenAI
from specclient.providers import Endpoint
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request


async def preload(client: AsyncOpenAI, models: Iterable[str]) -> None:
    """Load local models by generating one token with each.

    Args:
        client: supplies the engines.
        models: as ``provider/model``; models of hosted providers are skipped.

    Raises:
        OpenAIError: a model is unknown or cannot be loaded.
    """
    places = client.pipeline.destinations
    for name in models:
        head, model = places.split(name)
        place = places.get(head)
        if not isinstance(place, Endpoint):  # not through the pipeline, so that the ledger does not record it
            await place.complete(Request(COMPLETION, name, {"prompt": "x", "max_tokens": 1}), model)
