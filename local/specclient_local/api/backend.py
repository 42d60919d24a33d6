"""Turn requests of the client's pipeline into engine requests, and their pieces into answers and chunks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError, NotFoundError
from specclient.types.backend import BackendChunk, BackendModel, BackendResponse, EngineState, EngineTelemetry
from specclient.types.request import Request
from specclient.types.server_load import ServerLoad
from specclient_local.api.openai_request.answer_format import ENGINE_FORMAT_PARAMETERS
from specclient_local.api.openai_request.parser import parse_request
from specclient_local.api.stream_merging import merge_streams
from specclient_local.api.telemetry import answer_telemetry
from specclient_local.api.tools.call_grammar import ToolSettings, tool_call_grammar
from specclient_local.api.tools.call_parser import ToolCallFormat, tool_call_format
from specclient_local.loading.configured_models import (
    ConfiguredModel,
    EngineKey,
    model_for_folder,
    read_configured_models,
)
from specclient_local.model.config import BUNDLED
from specclient_local.request.params import SamplingParams

if TYPE_CHECKING:
    from specclient_local.api.openai_response.response import ResponseBuilder
    from specclient_local.engine.answer import Generation, Piece
    from specclient_local.engine.engine import Engine
    from specclient_local.model.tokenizer import Tokenizer

__all__ = ["BUNDLED", "LocalBackend", "create"]

#: Libraries of the extra ``local``; a distribution installed without it still has this module.
_NEEDED = ("torch", "safetensors", "tokenizers")


def create(settings: Mapping[str, Any]) -> LocalBackend:
    """Make the backend; the entry point ``specclient.backends: local``.

    Args:
        settings: see :func:`specclient_local.loading.configured_models.read_configured_models`.

    Raises:
        ConfigurationError: a library that the engine computes with is not installed, or a setting is
            outside what is allowed.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the local engine is not installed ({', '.join(missing)} missing): "
            "pip install 'specclient[local]'"
        )
    return LocalBackend(settings)


class LocalBackend:
    """The models of this machine, each loaded at the first request for it.

    Args:
        settings: see :func:`create`.
        now: seconds since 1970, for the answers' ``created``.
    """

    def __init__(self, settings: Mapping[str, Any], now: Callable[[], float] = time.time) -> None:
        self._rows = read_configured_models(settings)
        self._now = now
        self._engines: dict[EngineKey, Engine] = {}
        self._loading: dict[EngineKey, threading.Lock] = {}
        self._tokenizers: dict[str, Tokenizer] = {}

    def models(self) -> Sequence[BackendModel]:
        """List the bundled pair and the configured models; reads at most their ``config.json``."""
        return [row.listed(name) for name, row in self._rows.items()]

    async def complete(self, request: Request, model: str) -> tuple[BackendResponse, EngineTelemetry]:
        """Serve a request whole; see :class:`specclient.types.backend.Backend`."""
        job = await self._prepare(request, model)
        generations: dict[int, Generation] = {}
        async with aclosing(job.pieces()) as pieces:
            async for index, piece in pieces:
                if piece.generation is not None:
                    generations[index] = piece.generation
        whole = [generations[index] for index in sorted(generations)]
        return job.shape.whole(whole), answer_telemetry(whole, job.row)

    async def stream(
        self, request: Request, model: str
    ) -> AsyncGenerator[BackendChunk | EngineTelemetry, None]:
        """Serve a request in chunks: role or prompt, text, finish, usage if asked for, then the telemetry.

        Chunks of several choices come in turns, as they are ready. What is wrong with a request is raised
        before the first chunk.
        """
        job = await self._prepare(request, model)
        generations: dict[int, Generation] = {}
        async with aclosing(job.pieces()) as pieces:
            async for index, piece in pieces:
                for chunk in job.shape.chunks(index, piece):
                    yield chunk
                if piece.generation is not None:
                    generations[index] = piece.generation
        whole = [generations[index] for index in sorted(generations)]
        if job.shape.asked.stream_usage:
            yield job.shape.usage(whole)
        yield answer_telemetry(whole, job.row)

    def count(self, request: Request, model: str) -> int | None:
        """Return the tokens of a request's prompt; see
        :class:`specclient.types.backend.SupportsTokenCount`."""
        row = self._row(model)
        try:
            tokenizer = self._tokenizer(row)
            asked = parse_request(request, model)
            if tokenizer is None:
                return None
            if asked.messages is not None:
                return len(tokenizer.chat(asked.messages, () if asked.tools is None else asked.tools.given))
            texts = (tokenizer.encode(p) if isinstance(p, str) else p for p in asked.prompts)
            return sum(map(len, texts))
        except (BadRequestError, CheckpointError):
            return None

    def state(self) -> Sequence[EngineState]:
        """Return how each loaded engine fares; see :class:`specclient.types.backend.SupportsEngineState`."""
        names = {row.key: name for name, row in reversed(self._rows.items())}
        return [
            EngineState(names.get(key, "folder"), engine.unfinished, engine.busy_s)
            for key, engine in tuple(self._engines.items())
        ]

    def busy(self, model: str) -> ServerLoad | None:
        """Return how busy a model's engine is; see :class:`specclient.types.server_load.SupportsLoad`."""
        engine = self._engines.get(self._row(model).key)
        if engine is None:
            return None
        unfinished, slots = engine.unfinished, engine.slots
        return ServerLoad(
            running=min(unfinished, slots),
            waiting=max(unfinished - slots, 0),
            slots=slots,
            cache_use=round(engine.cache_use, 2),
        )

    def _tokenizer(self, row: ConfiguredModel) -> Tokenizer | None:
        """Return a row's tokenizer: its engine's where that is loaded, None where it would be fetched."""
        from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415 - imports the library

        engine = self._engines.get(row.key)
        if engine is not None:
            return engine.tokenizer
        folder = Path(row.path).expanduser()
        if row.path not in self._tokenizers and folder.is_dir():
            self._tokenizers[row.path] = Tokenizer(folder)
        return self._tokenizers.get(row.path)

    async def aclose(self) -> None:
        """Close the engines, those being loaded too; unfinished requests fail.

        A request that comes later loads its model anew, and closing again closes that.
        """
        await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        for key, lock in tuple(self._loading.items()):
            with lock:
                engine = self._engines.pop(key, None)
            if engine is not None:
                engine.close()

    def _row(self, model: str) -> ConfiguredModel:
        row = self._rows.get(model)
        if row is not None:
            return row
        if Path(model).expanduser().is_dir():
            return model_for_folder(model, self._rows["demo"])
        raise NotFoundError(
            f"local/{model} is unknown; known are {', '.join(f'local/{name}' for name in self._rows)}, "
            "and local/PATH with the path of a checkpoint folder."
        )

    async def _prepare(self, request: Request, model: str) -> _PreparedRequest:
        """Load the engine if need be and lay the request out for it, both off the event loop."""
        asked = parse_request(request, model)
        row = self._row(model)

        def prepare() -> _PreparedRequest:
            engine = self._engine(row)
            from specclient_local.api.openai_response.response import ResponseBuilder  # noqa: PLC0415 - imports the tokenizers library

            prompts, form = asked.prompts, None
            params = row.drafted(asked.params)
            if asked.messages is not None:
                tools = () if asked.tools is None else asked.tools.given
                prompts = (engine.tokenizer.chat(asked.messages, tools),)
            if asked.tools is not None:
                form, params = _calling(asked.tools, params, engine.tokenizer, model)
            head = "chatcmpl" if request.operation == "chat" else "cmpl"
            shape = ResponseBuilder(
                operation=request.operation,
                id=f"{head}-{uuid.uuid4().hex}",
                created=int(self._now()),
                model=model,
                asked=asked,
                tokenizer=engine.tokenizer,
                form=form,
                new_id=lambda: uuid.uuid4().hex,
            )
            return _PreparedRequest(engine, row, shape, prompts, params)

        return await anyio.to_thread.run_sync(prepare)

    def _engine(self, row: ConfiguredModel) -> Engine:
        """Return a row's engine, loaded once however many ask at the same time."""
        from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch

        engine = self._engines.get(row.key)
        if engine is not None:
            return engine
        with self._loading.setdefault(row.key, threading.Lock()):
            if row.key not in self._engines:
                self._engines[row.key] = Engine.load(row.path, **row.loading)
            return self._engines[row.key]


@dataclass(frozen=True, slots=True)
class _PreparedRequest:
    """A request, ready to run.

    Attributes:
        prompts: one for each ``choices`` of them.
        params: of the first choice of each prompt.
    """

    engine: Engine
    row: ConfiguredModel
    shape: ResponseBuilder
    prompts: Sequence[str | list[int]]
    params: SamplingParams

    async def pieces(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """Run it: yield the pieces of all choices as they come, each with its choice's number.

        A seed is that of a prompt's first choice; the next ones take the next.

        Raises:
            BadRequestError: naming the parameter as the caller has it.
        """
        seed, asked = self.params.seed, self.shape.asked
        seeds = [None if seed is None else seed + i for i in range(asked.choices)]
        streams = [
            self.engine.astream(prompt, **_keywords(replace(self.params, seed=own)))
            for prompt in self.prompts
            for own in seeds
        ]
        try:
            async with aclosing(merge_streams(streams)) as pieces:
                async for numbered in pieces:
                    yield numbered
        except BadRequestError as error:
            name = asked.formed_by
            if name is None or error.param not in ENGINE_FORMAT_PARAMETERS:
                raise
            renamed = BadRequestError(str(error).replace(error.param, name, 1))
            renamed.param = name
            raise renamed from error


def _keywords(params: SamplingParams) -> dict[str, Any]:
    return {field.name: getattr(params, field.name) for field in fields(params)}


def _calling(
    tools: ToolSettings, params: SamplingParams, tokenizer: Tokenizer, model: str
) -> tuple[ToolCallFormat, SamplingParams]:
    """Return how a model calls tools, and the parameters that hold it to that.

    Raises:
        UnsupportedParameterError: it was taught no calls, or in a form that is not known.
    """
    form = tool_call_format(tokenizer.template(tools.given), model)
    return form, replace(params, grammar=tool_call_grammar(tools, form, tokenizer.added))
