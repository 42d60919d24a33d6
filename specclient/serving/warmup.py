"""Loading of local models before the first request."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from specclient.client.async_client import AsyncOpenAI
from specclient.errors import BadRequestError
from specclient.providers import Endpoint
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING
from specclient.types.model_kind import EMBEDDING_KIND
from specclient.types.request import Request

_MESSAGES = [{"role": "user", "content": "x"}]


async def preload(client: AsyncOpenAI, models: Iterable[str]) -> None:
    """Load local models, by one embedding, or by one token from a prompt and one from a chat.

    A model with a server of its own has it started.

    The first chat imports the library of chat templates, which takes seconds in which streams would be slow.

    Args:
        client: supplies the engines.
        models: as ``provider/model``; models of hosted providers are skipped.

    Raises:
        OpenAIError: a model is unknown or cannot be loaded.
    """
    places = client.pipeline.destinations
    for name in models:
        head, model = places.split(name)
        place = places.of_model(head, model)
        if isinstance(place, Endpoint):
            if place.server is not None:
                await place.server.endpoint(place)
                place.server.release()
            continue
        # Not through the pipeline, so that the ledger does not record it.
        kinds = {each.id: each.kind for each in place.models()}
        if kinds.get(model) == EMBEDDING_KIND:
            await place.complete(Request(EMBEDDING, name, {"input": "x"}), model)
        else:
            await place.complete(Request(COMPLETION, name, {"prompt": "x", "max_tokens": 1}), model)
            with suppress(BadRequestError):  # the model has no chat template
                await place.complete(Request(CHAT, name, {"messages": _MESSAGES, "max_tokens": 1}), model)
