"""Requests for embeddings on the embedding models of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from specclient.errors import BadRequestError, CheckpointError
from specclient.runtime.forks import import_lock
from specclient.types.backend import EngineState, EngineTelemetry
from specclient.types.request import Request
from specclient.types.request_limits import RequestLimits
from specclient.types.server_load import ServerLoad
from specclient_local.api.openai_request.embedding import EmbeddingRequest, parse_embedding, too_large
from specclient_local.embedding.layout_reader import is_embedding_checkpoint
from specclient_local.loading.configured_embeddings import (
    ConfiguredEmbedding,
    EmbedderKey,
    embedding_for_folder,
)
from specclient_local.loading.embedding_options import EmbeddingOptions
from specclient_local.model.config import short_name
from specclient_local.request.validation import bad_parameter

if TYPE_CHECKING:
    from specclient.types import CreateEmbeddingResponse
    from specclient_local.embedding.embedder import Embedder
    from specclient_local.embedding.text_tokens import TextTokens


class EmbeddingBackend:
    """Serves embedding models; each one is loaded at its first request.

    Args:
        models: the configured models, by name.
        threads: torch threads of models that requests name by their folder.
        limits: limits on requests.
    """

    def __init__(
        self, models: Mapping[str, ConfiguredEmbedding], threads: int | None, limits: RequestLimits
    ) -> None:
        self.models = models
        self._folder_options = EmbeddingOptions(threads=threads)
        self._limits = limits
        self._embedders: dict[EmbedderKey, Embedder] = {}
        self._loading: dict[EmbedderKey, threading.Lock] = {}

    def find(self, model: str) -> ConfiguredEmbedding | None:
        """Return a configured model, or the model in a folder; None if it is not an embedding model."""
        configured = self.models.get(model)
        if configured is None and is_embedding_checkpoint(Path(model).expanduser()):
            return embedding_for_folder(model, self._folder_options)
        return configured

    async def complete(
        self, request: Request, model: str, configured: ConfiguredEmbedding
    ) -> tuple[CreateEmbeddingResponse, EngineTelemetry]:
        """Return the embeddings of a request's texts, and the seconds that the model worked.

        Raises:
            BadRequestError: an invalid parameter.
            ContextOverflowError: a text exceeds the context, and the request does not truncate it.
            CheckpointError: the model cannot be loaded.
        """

        def prepare() -> tuple[Embedder, EmbeddingRequest, list[TextTokens]]:
            parsed = parse_embedding(request.params, model, self._limits)
            embedder = self.load(configured)
            return embedder, parsed, self._tokens(embedder, configured, parsed)

        embedder, parsed, texts = await anyio.to_thread.run_sync(prepare)
        embedded = await embedder.embed(texts, parsed.dimensions)
        from specclient_local.api.openai_response.embedding import embedding_response  # noqa: PLC0415 - OpenAI's types

        build = partial(embedding_response, model, embedded, as_base64=parsed.as_base64)
        telemetry = EngineTelemetry(None, embedded.engine_s, short_name(configured.path))
        return await anyio.to_thread.run_sync(build), telemetry

    def count(self, request: Request, model: str, configured: ConfiguredEmbedding) -> int | None:
        """Return the number of tokens of a request's texts; None if the model is not loaded or refuses
        them.
        """
        embedder = self._embedders.get(configured.key)
        if embedder is None:
            return None
        try:
            parsed = parse_embedding(request.params, model, self._limits)
            return sum(len(text.ids) for text in self._tokens(embedder, configured, parsed))
        except (BadRequestError, CheckpointError, ValueError):
            return None

    def load(self, configured: ConfiguredEmbedding) -> Embedder:
        """Return a model's embedder; concurrent callers load it once.

        Raises:
            CheckpointError, ConfigurationError: the model cannot be loaded.
        """
        key = configured.key
        embedder = self._embedders.get(key)
        if embedder is not None:
            return embedder
        with self._loading.setdefault(key, threading.Lock()):
            if key not in self._embedders:
                with import_lock:
                    from specclient_local.loading.embedding_loader import load_embedder  # noqa: PLC0415 - imports transformers

                self._embedders[key] = load_embedder(configured.path, configured.options)
            return self._embedders[key]

    def state(self) -> list[EngineState]:
        """Return the state of each loaded model."""
        names = {configured.key: name for name, configured in reversed(tuple(self.models.items()))}
        return [
            EngineState(names.get(key, "folder"), embedder.unfinished, embedder.busy_s)
            for key, embedder in tuple(self._embedders.items())
        ]

    def current_load(self, configured: ConfiguredEmbedding) -> ServerLoad | None:
        """Return the load of a model; None while it is not loaded."""
        embedder = self._embedders.get(configured.key)
        if embedder is None:
            return None
        unfinished = embedder.unfinished
        return ServerLoad(running=min(unfinished, 1), waiting=max(unfinished - 1, 0), slots=1, cache_use=0.0)

    def close(self) -> None:
        """Close all models, including those that are being loaded."""
        for key, lock in tuple(self._loading.items()):
            with lock:
                embedder = self._embedders.pop(key, None)
            if embedder is not None:
                embedder.close()

    def _tokens(
        self, embedder: Embedder, configured: ConfiguredEmbedding, parsed: EmbeddingRequest
    ) -> list[TextTokens]:
        """Return the tokens of each input.

        Raises:
            BadRequestError: there are more tokens than the limits allow, or more dimensions than the model
                has.
            ContextOverflowError: an input is too long.
        """
        if parsed.dimensions is not None and parsed.dimensions > embedder.dimensions:
            raise bad_parameter(
                "dimensions",
                parsed.dimensions,
                f"1 to {embedder.dimensions}, the size of this model's embeddings",
            )
        truncate = -1 if parsed.truncate is None and configured.truncate else parsed.truncate
        cut = embedder.limit if truncate == -1 else truncate
        prompt = embedder.prompt(parsed.prompt_name or configured.prompt_name)
        texts: list[TextTokens] = []
        total = 0
        for text in parsed.inputs:
            tokens = (
                embedder.tokens_of(text, prompt, truncate=cut)
                if isinstance(text, str)
                else embedder.checked(text, truncate=cut)
            )
            if not tokens.ids:
                raise bad_parameter("input", text, "a text of at least one token")
            total += len(tokens.ids)
            if total > self._limits.embedding_tokens:
                raise too_large(
                    f"input has more than {self._limits.embedding_tokens} tokens, which a request may have",
                    "embedding_tokens",
                )
            texts.append(tokens)
        return texts
