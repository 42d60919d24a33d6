"""The package's own server on loopback, in this process, with a separate thread and event loop.

with Served() as served:                      # local/demo, local/demo-target
    served.base_url                           # http://127.0.0.1:PORT/v1
with Served(settings, key="k", limits=Limits(running=1)) as served: ...
served.client                                 # the server's AsyncOpenAI, for inspection; it runs on that loop
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from loopback_server import OpenAIServer
from pydantic import SecretStr

from specclient import AsyncOpenAI
from specclient.config import Settings
from specclient.serving import Limits, bind, create_app, make_server
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.rate_limits import UsageMeter


class Served:
    """The server as a context manager.

    Args:
        settings: the client's settings; by default those of an empty configuration.
        key: the API key that requests must have.
        keys: stored keys; see :func:`specclient.serving.create_app`.
        meter: the meter of the keys' usage; see :func:`specclient.serving.create_app`.
        models: the models to serve; all by default.
        limits: see :class:`specclient.serving.Limits`.
        new_loop: makes the event loop; asyncio's by default.
        options: further options of the server's client.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        key: str | None = None,
        keys: KeyCache | None = None,
        meter: UsageMeter | None = None,
        models: Sequence[str] = (),
        limits: Limits | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **options: Any,
    ) -> None:
        self._new_loop = new_loop
        self.limits = limits or Limits(grace_s=5)
        self.client = AsyncOpenAI(config=settings or Settings(), **options)
        app = create_app(
            self.client,
            key=SecretStr(key) if key else None,
            keys=keys,
            meter=meter,
            models=models,
            limits=self.limits,
        )
        self.service = app.state.service
        self.server = make_server(app, self.limits)
        self._socket = bind("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            await self.server.serve(sockets=[self._socket])

        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(serve())

    def __enter__(self) -> Self:
        self._thread.start()
        assert wait_until(lambda: self.server.started), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server as a signal does; may be called twice."""
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not stop"

    def engine_jobs(self) -> int:
        """Return the number of running and waiting requests of the engines in this process."""
        backend: Any = self.client.pipeline.destinations.get("local")
        return sum(engine.unfinished for engine in backend._engines.values())


def upstream_settings(server: OpenAIServer, **more: object) -> Settings:
    """Return settings in which the default provider, ``mine``, is a server on loopback."""
    tables = {
        "default_provider": "mine",
        "ledger": "off",
        "candidates": ["mine/m-large", "mine/m-small"],
        "providers": {"mine": {"base_url": server.base_url, "api_key": "sk-upstream", "models": ["m-large"]}},
        "prices": {"mine/m-large": {"input": 2, "output": 8}, "mine/m-small": {"input": 1, "output": 4}},
    }
    return Settings.model_validate({**tables, **more})


def wait_until(true: Any, seconds: float = 20.0, *, rest: float = 4.0) -> bool:
    """Return whether the callable ``true`` returns a true value within this time.

    A call that takes long, such as a request or a program, is repeated after ``rest`` times as long, so that
    waiting takes a fifth of a processor at most.
    """
    end = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if true():
            return True
        now = time.monotonic()
        if now > end:
            return False
        time.sleep(min(max(0.01, rest * (now - begun)), 0.5))
