"""A real PostgreSQL server, which can be stopped as if the power failed, and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs, which are not on the PATH on Debian."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    pytest.importorskip("sqlalchemy", reason="the extra `postgres` is not installed")
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders or not (folders[-1] / "postgres").exists():
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    return folders[-1]


class PostgresServer:
    """The server as a context manager; skips the test where PostgreSQL is not installed.

    It listens at a socket in a folder and at :attr:`port` on loopback, and accepts the user ``me``.
    """

    def __init__(self) -> None:
        self._programs = _programs()
        self._numbers = count()
        self.folder = Path(tempfile.mkdtemp(prefix="specclient-pg-"))
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            try:
                owner = pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("root cannot run PostgreSQL, and there is no user 'postgres'")
            as_user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._log = (self.folder / "log").open("w")
        self._common: dict[str, Any] = {
            "cwd": self.folder, "env": {"LC_ALL": "C.UTF-8", "PATH": os.defpath}, "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL, "stderr": self._log, **as_user,
        }  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def __enter__(self) -> Self:
        data = self.folder / "data"
        make = [self._programs / "initdb", "--auth=trust", "--username=me", "--encoding=UTF8"]
        subprocess.run([*make, "--no-sync", data], check=True, **self._common)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGINT)  # PostgreSQL's fast shutdown: disconnects clients
        self._log.close()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        options = ["listen_addresses=127.0.0.1", f"port={self.port}", "fsync=off"]
        options.append(f"unix_socket_directories={self.folder}")
        command = [self._programs / "postgres", "-D", self.folder / "data"]
        self._process = subprocess.Popen([*command, *(f"-c{each}" for each in options)], **self._common)
        ready = [self._programs / "pg_isready", "--quiet", f"--host={self.folder}", f"--port={self.port}"]
        while subprocess.run([*ready, "--username=me"], check=False, **self._common).returncode:
            assert self._process.poll() is None, (self.folder / "log").read_text()

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """Stop it: at once and without a checkpoint, as ``pg_ctl stop -m immediate``; may be called twice."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(60)

    def create_database(self) -> str:
        """Create an empty database and return its name."""
        import psycopg

        name = f"ledger_{next(self._numbers)}"
        host = f"host={self.folder} port={self.port} user=me dbname=postgres"
        with psycopg.connect(host, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def url_of(self, database: str, port: int | None = None) -> str:
        """Return the URL of a database at the server's port, or at that of a proxy."""
        return f"postgresql://me@127.0.0.1:{port or self.port}/{database}"
