"""Turn requests of the client's pipeline into engine requests, and pieces into OpenAI answers and chunks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError, NotFoundError
from specclient.types.backend import Answer, BackendModel, Chunk, Telemetry
from specclient.types.request import Request
from specclient_local.config import DTYPES, read_config
from specclient_local.dialect import Asked, read
from specclient_local.params import ENGINE_METHODS, Method

if TYPE_CHECKING:
    from specclient_local.answer import Generation
    from specclient_local.engine import Engine
    from specclient_local.model.tokenizer import Tokenizer
    from specclient_local.shape import Shape

BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True, slots=True)
class Row:
    """A model that can be asked for: which checkpoints it runs, and how.

    Rows that share checkpoints and type share one engine.
    """

    path: str
    draft: str | None = None
    method: str = "auto"
    dtype: str = "float32"

    @property
    def runs(self) -> Method:
        """The method a request gets."""
        return "plain" if self.draft is None or self.method == "plain" else "draft"


Key = tuple[str, str | None, str]
"""Path, draft and type of an engine."""

#: Libraries of the extra ``local``; a distribution installed without it still has this module.
_NEEDED = ("torch", "safetensors", "tokenizers")

_PAIR = (str(BUNDLED / "target"), str(BUNDLED / "draft"))
DEMO = {"demo": Row(*_PAIR), "demo-target": Row(*_PAIR, method="plain")}


def create(settings: Mapping[str, Any]) -> LocalBackend:
    """Make the backend; the entry point ``specclient.backends: local``.

    Args:
        settings: ``models`` (name to path, draft, method, dtype), ``slots``, ``threads``; all optional.

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
        configured = {name: _read_row(name, row) for name, row in (settings.get("models") or {}).items()}
        self._rows: dict[str, Row] = DEMO | configured
        self._slots = _at_least_one(settings, "slots") or 4
        self._threads = _at_least_one(settings, "threads")
        self._now = now
        self._engines: dict[Key, Engine] = {}
        self._loading: dict[Key, threading.Lock] = {}
        self._tokenizers: dict[str, Tokenizer] = {}

    def models(self) -> Sequence[BackendModel]:
        """List the bundled pair and the configured models; reads at most their ``config.json``."""
        return [
            BackendModel(
                id=name,
                target=row.path,
                draft=row.draft if row.runs == "draft" else None,
                method=row.runs,
                context=_context(row.path),
            )
            for name, row in self._rows.items()
        ]

    async def complete(self, request: Request, model: str) -> tuple[Answer, Telemetry]:
        """Serve a request whole; see :class:`specclient.types.backend.Backend`."""
        asked = read(request, model)
        engine, prompt = await self._prepare(asked, model)
        generation: Generation | None = None
        async with aclosing(engine.astream(prompt, **self._params(asked, model))) as pieces:
            async for piece in pieces:
                generation = piece.generation
        assert generation is not None
        return self._shape(request, model, asked, engine).whole(generation), _telemetry(
            generation, self._row(model)
        )

    async def stream(self, request: Request, model: str) -> AsyncGenerator[Chunk | Telemetry, None]:
        """Serve a request in chunks: role or prompt, text, finish, usage if asked for, then the telemetry.

        What is wrong with a request is raised before the first chunk.
        """
        asked = read(request, model)
        engine, prompt = await self._prepare(asked, model)
        shape = self._shape(request, model, asked, engine)
        async with aclosing(engine.astream(prompt, **self._params(asked, model))) as pieces:
            async for piece in pieces:
                opening = None if piece.prompt_token_ids is None else shape.opening(piece)
                for chunk in (opening, shape.text(piece)):
                    if chunk is not None:
                        yield chunk
                if piece.generation is not None:
                    yield shape.finish(piece.generation.finish_reason)
                    if asked.stream_usage:
                        yield shape.usage(piece.generation)
                    yield _telemetry(piece.generation, self._row(model))

    def count(self, request: Request, model: str) -> int | None:
        """Return the tokens of a request's prompt; see :class:`specclient.types.backend.Counting`."""
        row = self._row(model)
        try:
            tokenizer = self._tokenizer(row)
            asked = read(request, model)
            if tokenizer is None:
                return None
            if asked.messages is not None:
                return len(tokenizer.chat(asked.messages))
            prompt = asked.prompt or ""
            return len(tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        except (BadRequestError, CheckpointError):
            return None

    def _tokenizer(self, row: Row) -> Tokenizer | None:
        """Return a row's tokenizer: its engine's where that is loaded, None where it would be fetched."""
        from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415 - imports the library

        engine = self._engines.get((row.path, row.draft, row.dtype))
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

    def _row(self, model: str) -> Row:
        row = self._rows.get(model)
        if row is not None:
            return row
        if Path(model).expanduser().is_dir():
            return Row(model)
        raise NotFoundError(
            f"local/{model} is unknown; known are {', '.join(f'local/{name}' for name in self._rows)}, "
            "and local/PATH with the path of a checkpoint folder."
        )

    def _shape(self, request: Request, model: str, asked: Asked, engine: Engine) -> Shape:
        from specclient_local.shape import Shape  # noqa: PLC0415 - imports the tokenizers library

        prefix = "chatcmpl" if request.operation == "chat" else "cmpl"
        name = f"{prefix}-{uuid.uuid4().hex}"
        return Shape(request.operation, name, int(self._now()), model, asked, engine.tokenizer)

    def _params(self, asked: Asked, model: str) -> dict[str, Any]:
        params, predicted = asked.params, asked.params.prediction is not None
        return {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "seed": params.seed,
            "stop": params.stop,
            "draft_length": params.draft_length,
            "method": params.method or ("prediction" if predicted else self._row(model).runs),
            "prediction": params.prediction,
            "logprobs": params.logprobs,
            "prompt_logprobs": params.prompt_logprobs,
        }

    async def _prepare(self, asked: Asked, model: str) -> tuple[Engine, list[int] | str]:
        """Load the engine if need be and turn the request into a prompt, both off the event loop."""
        row = self._row(model)

        def prepare() -> tuple[Engine, list[int] | str]:
            engine = self._engine(row)
            if asked.messages is not None:
                return engine, engine.tokenizer.chat(asked.messages)
            return engine, asked.prompt or ""

        return await anyio.to_thread.run_sync(prepare)

    def _engine(self, row: Row) -> Engine:
        """Return a row's engine, loaded once however many ask at the same time."""
        from specclient_local.engine import Engine  # noqa: PLC0415 - imports torch

        key = (row.path, row.draft, row.dtype)
        engine = self._engines.get(key)
        if engine is not None:
            return engine
        with self._loading.setdefault(key, threading.Lock()):
            if key not in self._engines:
                self._engines[key] = Engine.load(
                    row.path, row.draft, dtype=row.dtype, slots=self._slots, threads=self._threads
                )
            return self._engines[key]


def _read_row(name: str, row: object) -> Row:
    """Check a configured model; whether its folders hold one is seen when it is loaded."""
    where, known = f"local model {name!r}", [field.name for field in fields(Row)]
    if not isinstance(row, Mapping) or "path" not in row:
        raise ConfigurationError(f"{where} is {row!r}; it needs a table with path, and may have {known[1:]}.")
    unknown = [key for key in row if key not in known]
    if unknown:
        raise ConfigurationError(f"{where} has {unknown[0]!r}; allowed are {', '.join(known)}.")
    made: Row = Row(**row)
    for key, folder in (("path", made.path), ("draft", "" if made.draft is None else made.draft)):
        if not isinstance(folder, str):
            raise ConfigurationError(f"{where}: {key} is {folder!r}; it names a folder or hub id.")
    for key, value, allowed in (
        ("method", made.method, ("auto", *ENGINE_METHODS)),
        ("dtype", made.dtype, DTYPES),
    ):
        if value not in allowed:
            raise ConfigurationError(f"{where}: {key} is {value!r}; allowed are {', '.join(allowed)}.")
    if made.method == "draft" and made.draft is None:
        raise ConfigurationError(
            f"{where}: method is 'draft', but it has no draft; name one, or use 'plain'."
        )
    return made


def _at_least_one(settings: Mapping[str, Any], name: str) -> int | None:
    value = settings.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ConfigurationError(f"{name} is {value!r}; allowed is an integer of at least 1.")


def _telemetry(generation: Generation, row: Row) -> Telemetry:
    speculation, pair = generation.speculation, _short(row.path)
    if row.draft is not None and speculation is not None and speculation.method == "draft":
        pair += f"+{_short(row.draft)}"
    return Telemetry(speculation=speculation, engine_s=generation.timings.engine_s, pair=pair)


def _short(path: str) -> str:
    """Return what tells a checkpoint from others: the last two parts of its path, or its hub id."""
    return "/".join(Path(path).parts[-2:])


def _context(path: str) -> int | None:
    """Return a checkpoint's context without loading it, or None where it is not on this machine."""
    try:
        return read_config(Path(path).expanduser()).context
    except CheckpointError:
        return None
