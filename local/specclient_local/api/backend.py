"""The backend behind ``local/NAME``: runs the client's requests on engines in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError, NotFoundError
from specclient.runtime.forks import import_lock
from specclient.types.backend import BackendChunk, BackendModel, BackendResponse, EngineState, EngineTelemetry
from specclient.types.model_kind import CHAT_KIND, EMBEDDING_KIND, ModelKind, wrong_kind
from specclient.types.request import Request
from specclient.types.request_limits import RequestLimits
from specclient.types.server_load import ServerLoad
from specclient_local.api.embedding_backend import EmbeddingBackend
from specclient_local.api.openai_request.parser import parse_request
from specclient_local.api.prepared_request import PreparedRequest
from specclient_local.api.request_preparation import encoded_prompts, prepare_request
from specclient_local.api.telemetry import AnswerTotals
from specclient_local.loading.configured_embeddings import ConfiguredEmbedding, read_configured_embeddings
from specclient_local.loading.configured_models import (
    ConfiguredModel,
    EngineKey,
    model_for_folder,
    read_configured_models,
)
from specclient_local.managed.managed_models import read_managed_models
from specclient_local.model.checkpoint_files import is_gguf
from specclient_local.model.config import BUNDLED

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation
    from specclient_local.engine.engine import Engine
    from specclient_local.managed.engine_server import EngineServer
    from specclient_local.model.tokenizer import Tokenizer

__all__ = ["BUNDLED", "LocalBackend", "create"]

#: Libraries that the extra ``local`` installs; without the extra, this module exists but cannot run.
_REQUIRED_LIBRARIES = ("torch", "safetensors", "tokenizers")


def create(settings: Mapping[str, Any]) -> LocalBackend:
    """Create the backend; the target of the entry point ``specclient.backends: local``.

    Args:
        settings: see :func:`specclient_local.loading.configured_models.read_configured_models`; and
            ``requests``, the :class:`specclient.types.request_limits.RequestLimits`, optional.

    Raises:
        ConfigurationError: a required library is not installed, and no model has a server of its own, which
            needs none; or a setting has an invalid value.
    """
    backend = LocalBackend(settings)
    if not backend.has_servers:
        _check_installed()
    return backend


def _check_installed() -> None:
    """Raise ConfigurationError if a library of the engine is not installed."""
    missing = [name for name in _REQUIRED_LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the local engine is not installed ({', '.join(missing)} missing): "
            "pip install 'specclient[local]'"
        )


class LocalBackend:
    """Serves local models; each one is loaded at its first request.

    Args:
        settings: see :func:`create`.
        now: returns seconds since 1970, for the ``created`` field of responses.
    """

    def __init__(self, settings: Mapping[str, Any], now: Callable[[], float] = time.time) -> None:
        self._models = read_configured_models(settings)
        self._managed = read_managed_models(settings, self._models)
        self._servers: dict[str, EngineServer] = {}
        self._limits: RequestLimits = settings.get("requests") or RequestLimits()
        self._embeddings = EmbeddingBackend(
            read_configured_embeddings(settings), settings.get("threads"), self._limits
        )
        self._now = now
        self._engines: dict[EngineKey, Engine] = {}
        self._loading: dict[EngineKey, threading.Lock] = {}
        self._tokenizers: dict[str, Tokenizer] = {}

    @property
    def has_servers(self) -> bool:
        """Whether a model has a server of its own."""
        return bool(self._managed)

    def models(self) -> Sequence[BackendModel]:
        """List the bundled pair and the configured models, also those with servers of their own.

        Reads at most their ``config.json``.
        """
        tables = (self._models, self._embeddings.models)
        listed = [configured.listed(name) for table in tables for name, configured in table.items()]
        return [self._with_engine(each) for each in listed]

    def _with_engine(self, listed: BackendModel) -> BackendModel:
        """Return the entry of the model list with the engine that serves the model, if it is not this one."""
        managed = self._managed.get(listed.id)
        if managed is None:
            return listed
        return replace(listed, options={**listed.options, "engine": managed.engine})

    def server(self, model: str) -> EngineServer | None:
        """Return the server of a model with ``engine`` or ``command``, without starting it; else None.

        See :class:`specclient.types.backend.SupportsServers`.
        """
        managed = self._managed.get(model)
        if managed is None:
            return None
        found = self._servers.get(model)
        if found is None:
            with import_lock:
                from specclient_local.managed.engine_server import EngineServer  # noqa: PLC0415 - few programs need it

            found = self._servers.setdefault(model, EngineServer(managed))
        return found

    async def complete(self, request: Request, model: str) -> tuple[BackendResponse, EngineTelemetry]:
        """Return the complete response; see :class:`specclient.types.backend.Backend`."""
        if request.operation == "embedding":
            return await self._embeddings.complete(request, model, self._embedding(model))
        prepared = await self._prepare(request, model)
        by_choice: dict[int, Generation] = {}
        totals = AnswerTotals(prepared.builder.request.choices)
        async with aclosing(prepared.pieces()) as pieces:
            async for index, piece in pieces:
                if piece.generation is not None:
                    by_choice[index] = piece.generation
                    totals.add(index, piece.generation)
        generations = [by_choice[index] for index in sorted(by_choice)]
        build = partial(prepared.builder.response, generations, totals.usage())
        response = await anyio.to_thread.run_sync(build) if prepared.has_many_logprobs else build()
        return response, totals.telemetry(prepared.configured)

    async def stream(
        self, request: Request, model: str
    ) -> AsyncGenerator[BackendChunk | EngineTelemetry, None]:
        """Yield the response in chunks, then the telemetry.

        Order per choice: role or echoed prompt, text, finish reason. A usage chunk follows if the request
        has ``stream_options.include_usage``. Chunks of several choices interleave as they become ready.
        An invalid request raises before the first chunk.
        """
        prepared = await self._prepare(request, model)
        totals = AnswerTotals(prepared.builder.request.choices)
        async with aclosing(prepared.pieces()) as pieces:
            async for index, piece in pieces:
                build = partial(prepared.builder.chunks, index, piece)
                large = piece.scored is not None and prepared.has_many_logprobs
                for chunk in await anyio.to_thread.run_sync(build) if large else build():
                    yield chunk
                if piece.generation is not None:
                    totals.add(index, piece.generation)
        if prepared.builder.request.stream_usage:
            yield prepared.builder.usage(totals.usage())
        yield totals.telemetry(prepared.configured)

    def count(self, request: Request, model: str) -> int | None:
        """Return the number of prompt tokens, or None where it is unknown without loading the model.

        See :class:`specclient.types.backend.SupportsTokenCount`.
        """
        if request.operation == "embedding":
            return self._embeddings.count(request, model, self._embedding(model))
        configured = self._configured(model)
        try:
            tokenizer = self._tokenizer(configured)
            parsed = parse_request(request, model, self._limits)
            if tokenizer is None:
                return None
            if parsed.messages is not None:
                tools = () if parsed.tools is None else parsed.tools.definitions
                return len(tokenizer.chat(parsed.messages, tools))
            return sum(map(len, encoded_prompts(parsed, tokenizer)))
        except (BadRequestError, CheckpointError):
            return None

    def state(self) -> Sequence[EngineState]:
        """Return the state of each loaded engine; see
        :class:`specclient.types.backend.SupportsEngineState`."""
        names = {configured.key: name for name, configured in reversed(self._models.items())}
        engines = [
            EngineState(names.get(key, "folder"), engine.unfinished, engine.busy_s)
            for key, engine in tuple(self._engines.items())
        ]
        return engines + self._embeddings.state()

    def current_load(self, model: str) -> ServerLoad | None:
        """Return the load of a model's engine; None while it is not loaded.

        See :class:`specclient.types.server_load.SupportsLoad`.
        """
        if model not in self._models and (embedding := self._embeddings.find(model)) is not None:
            return self._embeddings.current_load(embedding)
        engine = self._engines.get(self._configured(model).key)
        if engine is None:
            return None
        unfinished, slots = engine.unfinished, engine.slots
        return ServerLoad(
            running=min(unfinished, slots),
            waiting=max(unfinished - slots, 0),
            slots=slots,
            cache_use=round(engine.cache_use, 2),
        )

    def _tokenizer(self, configured: ConfiguredModel) -> Tokenizer | None:
        """Return a model's tokenizer: that of its loaded engine, or one read from its folder.

        None where it would have to be downloaded.
        """
        from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415 - imports the library

        engine = self._engines.get(configured.key)
        if engine is not None:
            return engine.tokenizer
        folder = Path(configured.path).expanduser()
        if configured.path not in self._tokenizers and (folder.is_dir() or is_gguf(folder)):
            self._tokenizers[configured.path] = Tokenizer(folder)
        return self._tokenizers.get(configured.path)

    async def aclose(self) -> None:
        """Close all engines, including those that are being loaded; unfinished requests fail.

        The backend stays usable: a later request loads its model again, and a later ``aclose`` closes it.
        """
        await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        for server in tuple(self._servers.values()):
            server.close()
        self._embeddings.close()
        for key, lock in tuple(self._loading.items()):
            with lock:
                engine = self._engines.pop(key, None)
            if engine is not None:
                engine.close()

    def engine_for(self, model: str) -> Engine:
        """Return the engine of a model, loading it at the first call.

        Raises:
            NotFoundError: the name is neither configured nor a checkpoint folder.
            CheckpointError: the checkpoint cannot be loaded.
        """
        return self._load(self._configured(model))

    def _configured(self, model: str) -> ConfiguredModel:
        """Return a model that answers chats.

        Raises:
            NotFoundError: the name is neither configured nor a checkpoint folder.
            BadRequestError: it is an embedding model.
        """
        configured = self._models.get(model)
        if configured is not None:
            return configured
        if self._embeddings.find(model) is not None:
            raise _wrong_kind(model, EMBEDDING_KIND)
        folder = Path(model).expanduser()
        if folder.is_dir() or (is_gguf(folder) and folder.exists()):
            return model_for_folder(model, self._models["demo"])
        names = (*self._models, *self._embeddings.models)
        near = get_close_matches(model, names, n=1)
        hint = f"did you mean local/{near[0]}? Known" if near else "known"
        known = ", ".join(f"local/{name}" for name in names)
        raise NotFoundError(
            f"local/{model} is unknown; {hint} are {known}, and local/PATH with the path of a checkpoint "
            "folder or a GGUF file."
        )

    def _embedding(self, model: str) -> ConfiguredEmbedding:
        """Return an embedding model; raises as :meth:`_configured`."""
        configured = None if model in self._models else self._embeddings.find(model)
        if configured is not None:
            return configured
        self._configured(model)
        raise _wrong_kind(model, CHAT_KIND)

    async def _prepare(self, request: Request, model: str) -> PreparedRequest:
        """Parse the request, load the engine if necessary, and tokenize the prompt, in a worker thread."""
        configured = self._configured(model)

        def prepare() -> PreparedRequest:
            parsed = parse_request(request, model, self._limits)
            engine = self._load(configured)
            created = int(self._now())
            return prepare_request(
                parsed, request, model, engine, configured, limits=self._limits, created=created
            )

        return await anyio.to_thread.run_sync(prepare)

    def _load(self, configured: ConfiguredModel) -> Engine:
        """Return a model's engine; concurrent callers load it once."""
        key = configured.key
        engine = self._engines.get(key)
        if engine is not None:
            return engine
        _check_installed()
        from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch

        with self._loading.setdefault(key, threading.Lock()):
            if key not in self._engines:
                options = configured.load_options
                self._engines[key] = Engine.load(configured.path, request_limits=self._limits, **options)
            return self._engines[key]


def _wrong_kind(model: str, kind: ModelKind) -> BadRequestError:
    error = BadRequestError(f"{wrong_kind(f'local/{model}', kind)}.")
    error.param, error.code = "model", "wrong_model_kind"
    return error
