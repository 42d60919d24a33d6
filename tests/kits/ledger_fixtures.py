"""Fixtures for ledger tests: finished calls and a PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from specclient.types.call import Call
from specclient.types.route import Candidate, Decision

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def build_call(id: str = "c1", route: str = "openai/gpt-4.1", **values: Any) -> Call:  # noqa: A002
    provider, _, model = route.partition("/")
    decision = Decision(
        chosen=route, provider=provider, model=model, candidates=(Candidate(route, verdict="chosen"),)
    )
    defaults: dict[str, Any] = {"started_at": AT, "operation": "chat", "model": route, "status": "ok"}
    return Call(id=id, route=decision, **(defaults | values))


@pytest.fixture
def make_call():
    return build_call


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs, which are not on the PATH on Debian."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    pytest.importorskip("sqlalchemy", reason="the extra `postgres` is not installed")
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders or not (folders[-1] / "postgres").exists():
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    return folders[-1]


@pytest.fixture(scope="session")
def postgres():
    """Run a PostgreSQL server; the value is the folder of its socket."""
    programs = _programs()
    as_user: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="specclient-pg-"))
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("root cannot run PostgreSQL, and there is no user 'postgres'")
        as_user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    common: dict[str, Any] = {
        "cwd": folder, "env": {"LC_ALL": "C.UTF-8", "PATH": os.defpath}, "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL, **as_user,
    }  # fmt: skip
    log = (folder / "log").open("w")
    try:
        make = [programs / "initdb", "--no-sync", "--auth=trust", "--username=me", "--encoding=UTF8"]
        subprocess.run([*make, folder / "data"], check=True, stderr=log, **common)
        options = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        command = [programs / "postgres", "-D", folder / "data", *(f"-c{option}" for option in options)]
        with subprocess.Popen(command, stderr=log, **common) as server:
            try:
                ready = [programs / "pg_isready", "--quiet", f"--host={folder}", "--username=me"]
                while subprocess.run(ready, check=False, stderr=log, **common).returncode:
                    assert server.poll() is None, (folder / "log").read_text()
                yield folder
            finally:
                server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown: disconnects clients
    finally:
        log.close()
        shutil.rmtree(folder)


_numbers = count()


@pytest.fixture
def postgres_url(postgres):
    """Create an empty database; the value is its URL."""
    import psycopg

    name = f"ledger_{next(_numbers)}"
    with psycopg.connect(f"host={postgres} user=me dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://me@/{name}?host={postgres}"
