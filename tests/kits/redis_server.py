"""A real ``redis-server`` on loopback, which can be stopped and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

import pytest
from gateway_server import wait_until
from pydantic import SecretStr


class RedisServer:
    """The server as a context manager; skips the test where Redis is not installed.

    Args:
        folder: its working folder.

    Attributes:
        port: its port, which stays the same.
        url: its URL, with the password.
    """

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("no redis-server is installed (apt-get install redis-server)")
        pytest.importorskip("redis", reason="the extra `redis` is not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = self.url_at(self.port)
        self._folder = folder

    def url_at(self, port: int) -> SecretStr:
        """Return the URL at another port, such as that of a proxy."""
        return SecretStr(f"redis://:open-sesame@127.0.0.1:{port}/0")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, without any counts."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--requirepass", "open-sesame"], stdout=subprocess.DEVNULL
        )
        assert wait_until(self._accepts), "redis-server did not start"

    def stop(self) -> None:
        """Kill it; may be called twice."""
        self._process.kill()
        self._process.wait()

    def _accepts(self) -> bool:
        assert self._process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
