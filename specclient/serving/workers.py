"""The plan of a server, and servers with several worker processes on one port.

uvicorn's supervisor starts, monitors and replaces the workers. Each worker makes its application from the
plan. Workers share budgets through the ledger's database, and rate limits of keys through Redis. SIGHUP
replaces the workers one by one; SIGTERM and SIGINT stop them after running requests have ended.
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
from specclient.response_cache.location import answer_store
from specclient.serving.app import create_app
from specclient.serving.connection import limited_protocol
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.rate_limits import UsageMeter
from specclient.serving.keys.store import KeyStore
from specclient.serving.limits import Limits
from specclient.serving.metrics import FOLDER_VARIABLE
from specclient.serving.process_settings import (
    limit_kept_memory,
    shorten_switch_interval,
    small_objects_in_glibc,
    tune_garbage_collection,
)
from specclient.serving.server import uvicorn_options
from specclient.serving.warmup import preload

__all__ = ["ServerPlan", "app_of", "serve_by_workers", "usage_meter_of"]

#: Seconds after which a worker without a response is replaced; importing an engine may block it for a while.
_HEALTH_CHECK_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """The plan of a server; can be pickled.

    Attributes:
        settings: settings of the client.
        key: the operator's key.
        keyed: whether a key is required even if none is stored.
        models: as in :func:`specclient.serving.create_app`.
        limits: as in :func:`specclient.serving.create_app`.
        preloaded: models that are loaded before the first request.
    """

    settings: Settings
    key: SecretStr | None = None
    keyed: bool = False
    models: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    preloaded: tuple[str, ...] = ()


def app_of(plan: ServerPlan) -> Starlette:
    """Return the application of a plan. Its models are not loaded.

    Raises:
        OpenAIError: the plan is invalid.
    """
    store = KeyStore.of(plan.settings.ledger)
    keys = None if store is None else KeyCache(store, required=plan.keyed)
    meter = usage_meter_of(plan.settings)
    cache = plan.settings.cache
    if cache.store is not None:  # an invalid one is refused now, and not by each request
        answer_store(cache.store, cache.limits()).close()
    client = AsyncOpenAI(config=plan.settings)
    return create_app(client, key=plan.key, keys=keys, meter=meter, models=plan.models, limits=plan.limits)


def usage_meter_of(settings: Settings) -> UsageMeter | None:
    """Return the usage meter in Redis; None if no Redis server is configured.

    Raises:
        ConfigurationError: the URL is invalid, or the package redis is missing.
    """
    if settings.server.redis_url is None:
        return None
    from specclient.serving.keys.redis_meter import RedisUsageMeter  # noqa: PLC0415 - an extra

    return RedisUsageMeter(settings.server.redis_url)


def serve_by_workers(plan: ServerPlan, sock: socket.socket, workers: int) -> bool:
    """Serve on a bound socket in several processes until a signal stops them.

    Args:
        plan: what is served.
        sock: a bound socket.
        workers: number of processes.

    Returns:
        Whether all workers started; a worker that did not start has printed the error on stderr.
    """
    with _shared_metrics_folder(), small_objects_in_glibc():
        return _WorkerSupervisor(_WorkerConfig(plan, workers), [sock]).run_to_end()


class _WorkerConfig(uvicorn.Config):
    """Configuration of a worker. It is pickled, and makes the application in the worker process."""

    def __init__(self, plan: ServerPlan, workers: int) -> None:
        super().__init__(
            partial(_loaded_app, plan),
            factory=True,
            workers=workers,
            timeout_worker_healthcheck=_HEALTH_CHECK_S,
            **uvicorn_options(plan.limits),
        )
        self._limits = plan.limits

    def load(self) -> None:
        """Make the application. An error stops all workers, because a restart would fail again."""
        self.http = limited_protocol(self._limits)
        _end_with_parent()
        limit_kept_memory()
        try:
            super().load()
        except OpenAIError as error:
            sys.stderr.write(f"specclient: {error}\n")
            sys.exit(STARTUP_FAILURE)
        tune_garbage_collection()
        shorten_switch_interval()


class _WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, which also removes the gauges of dead workers from the metrics."""

    def run_to_end(self) -> bool:
        """Run until all workers have ended; return whether all of them had started."""
        self.run()
        return all(process.exitcode != STARTUP_FAILURE for process in self.processes)

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        for process in self.processes:
            process.child_conn.close()  # so that the death of the worker ends a pending health check
        super().keep_subprocess_alive()
        gone = before - {process.pid for process in self.processes}
        if gone:
            from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - reads the environment variable on import

            for pid in gone:
                mark_process_dead(pid)  # type: ignore[no-untyped-call]


@contextmanager
def _shared_metrics_folder() -> Iterator[None]:
    """Return a context in which new processes share their metrics in a temporary folder."""
    if os.environ.get(FOLDER_VARIABLE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="specclient-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER_VARIABLE]


def _end_with_parent() -> None:
    """Stop this process gracefully when its parent process ends for any reason."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="specclient-parent", daemon=True).start()


def _loaded_app(plan: ServerPlan) -> Starlette:
    """Return the application of a plan with its models loaded. Works inside a running event loop."""
    app = app_of(plan)
    if plan.preloaded:
        # Loading needs an event loop of its own; this thread already runs one.
        with ThreadPoolExecutor(1) as threads:
            threads.submit(asyncio.run, preload(app.state.service.client, plan.preloaded)).result()
    return app
