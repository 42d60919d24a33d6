"""Turn a plan of what to serve into a server in this process, or in several that share one port.

Several are started, watched, and replaced when they die, by uvicorn's own supervisor; each makes its
application anew from the plan. They share budgets through the ledger's database, and what keys use of their
limits through Redis. SIGHUP replaces them one by one; SIGTERM and SIGINT let the requests of all end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection, parent_process

import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from specclient.client.async_client import AsyncOpenAI
from specclient.config import Settings
from specclient.errors import OpenAIError
from specclient.serving.app import create_app
from specclient.serving.connection import limited_protocol
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.rate_limits import UsageMeter
from specclient.serving.keys.store import KeyStore
from specclient.serving.limits import Limits
from specclient.serving.metrics import FOLDER
from specclient.serving.server import freeze_garbage, options_of
from specclient.serving.warmup import preload

__all__ = ["ServerPlan", "app_of", "meter_of", "serve_by_workers"]

#: Seconds after which a worker that says nothing is replaced: to import an engine may keep it from answering.
_SILENT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What is served, and to whom; goes to other processes as it is.

    Attributes:
        key: the operator's own.
        keyed: whether a key is needed even where none is stored.
        models, limits: as in :func:`specclient.serving.create_app`.
        preloaded: models that are loaded before requests are taken.
    """

    settings: Settings
    key: SecretStr | None = None
    keyed: bool = False
    models: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    preloaded: tuple[str, ...] = ()


def app_of(plan: ServerPlan) -> Starlette:
    """Return the application of a plan, its models not loaded yet.

    Raises:
        OpenAIError: what of it cannot be.
    """
    store = KeyStore.of(plan.settings.ledger)
    ring = None if store is None else KeyCache(store, required=plan.keyed)
    meter = meter_of(plan.settings)
    client = AsyncOpenAI(config=plan.settings)
    return create_app(client, key=plan.key, ring=ring, meter=meter, models=plan.models, limits=plan.limits)


def meter_of(settings: Settings) -> UsageMeter | None:
    """Return what counts in Redis, None where none is set.

    Raises:
        ConfigurationError: no such URL, or the package that speaks to Redis is missing.
    """
    if settings.server.redis_url is None:
        return None
    from specclient.serving.keys.redis_meter import RedisUsageMeter  # noqa: PLC0415 - an extra

    return RedisUsageMeter(settings.server.redis_url)


def serve_by_workers(plan: ServerPlan, sock: socket.socket, workers: int) -> bool:
    """Serve on a bound socket in several processes, until a signal ends them.

    Returns:
        Whether they could begin; one that could not has said why, on stderr.
    """
    with _figures_shared():
        return _WorkerSupervisor(_WorkerConfig(plan, workers), [sock]).ended_well()


class _WorkerConfig(uvicorn.Config):
    """What a worker is made by: goes to it as it is, and becomes an application there."""

    def __init__(self, plan: ServerPlan, workers: int) -> None:
        super().__init__(
            partial(_loaded, plan),
            factory=True,
            workers=workers,
            timeout_worker_healthcheck=_SILENT_S,
            **options_of(plan.limits),
        )
        self._limits = plan.limits

    def load(self) -> None:
        """Make the application; what it cannot be made for ends all workers, as it would end each anew."""
        self.http = limited_protocol(self._limits)
        _end_with_parent()
        try:
            super().load()
        except OpenAIError as error:
            sys.stderr.write(f"specclient: {error}\n")
            sys.exit(STARTUP_FAILURE)
        freeze_garbage()


class _WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, which also takes from the figures those of workers that are gone."""

    def ended_well(self) -> bool:
        """Watch over the workers to their end; returns whether none failed to begin."""
        self.run()
        return all(process.exitcode != STARTUP_FAILURE for process in self.processes)

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        for process in self.processes:
            process.child_conn.close()  # the worker has its own: so its death is heard amid a question to it
        super().keep_subprocess_alive()
        gone = before - {process.pid for process in self.processes}
        if gone:
            from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - reads the variable

            for pid in gone:
                mark_process_dead(pid)  # type: ignore[no-untyped-call]


@contextmanager
def _figures_shared() -> Iterator[None]:
    """Let the processes that begin meanwhile sum up what they count, in a folder of their own."""
    if os.environ.get(FOLDER):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="specclient-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def _end_with_parent() -> None:
    """End this process in order when the one that watches it is gone, however that died."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="specclient-parent", daemon=True).start()


def _loaded(plan: ServerPlan) -> Starlette:
    """Return the application of a plan, its models loaded, within a running event loop."""
    app = app_of(plan)
    if plan.preloaded:
        with ThreadPoolExecutor(1) as threads:  # loading waits in an event loop of its own
            threads.submit(asyncio.run, preload(app.state.service.client, plan.preloaded)).result()
    return app
