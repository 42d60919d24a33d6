"""The services of ``compose.yaml`` without containers: PostgreSQL, Redis and both gateways as processes.

The gateways have the command, environment and configuration of the file. Only the names of hosts, the ports,
and the provider's address are different.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import forked_program
import httpx
import psycopg
import pytest
import yaml
from compose_file import VARIABLES, compose_file, mounted
from forked_program import COMMAND, ForkedProgram
from gateway_server import wait_until
from loopback_server import OpenAIServer
from paths import ROOT
from postgres_server import PostgresServer
from redis_server import RedisServer

from specclient.ledger.ledger import Ledger
from specclient.serving.keys.key import new_key, new_token
from specclient.serving.keys.store import KeyStore

GATEWAYS = ("gateway-1", "gateway-2")
OPERATOR = VARIABLES["SPECCLIENT_SERVER_KEY"]
PRICES = '\n[prices."openai/*"]\ninput = 100\noutput = 1000\n'


class Topology:
    """The services as a context manager.

    Args:
        folder: for the files of the services.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.services: dict[str, Any] = compose_file()["services"]
        self.urls: dict[str, str] = {}
        self.processes: dict[str, ForkedProgram] = {}

    def __enter__(self) -> Topology:
        with ExitStack() as stack:
            self._upstream = stack.enter_context(OpenAIServer())
            postgres = stack.enter_context(PostgresServer())
            redis = stack.enter_context(RedisServer(self._folder))
            self.admin = postgres.url_of("postgres")
            self._make_database(postgres)
            self._hosts = {
                "postgres:5432": f"127.0.0.1:{postgres.port}",
                "redis:6379": f"127.0.0.1:{redis.port}",
            }
            for name in GATEWAYS:
                stack.callback(self.end, name)
                self._start(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make_database(self, postgres: PostgresServer) -> None:
        """Do what the image of PostgreSQL does with its variables."""
        given = self.services["postgres"]["environment"]
        user, database = given["POSTGRES_USER"], given["POSTGRES_DB"]
        rules = postgres.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{given['POSTGRES_PASSWORD']}'")
            connection.execute(f"CREATE DATABASE {database} OWNER {user}")
            connection.execute("SELECT pg_reload_conf()")

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a gateway, with the hosts and files of this machine."""
        service = self.services[name]
        given = {key: value for key, value in service["environment"].items() if value is not None}
        for host, address in self._hosts.items():
            given = {key: value.replace(host, address) for key, value in given.items()}
        shipped = ROOT / mounted(service, given["SPECCLIENT_CONFIG"])
        config = self._folder / "specclient.toml"
        config.write_text(
            f'{shipped.read_text()}\n[providers.openai]\nbase_url = "{self._upstream.base_url}"\n{PRICES}'
        )
        own = {"SPECCLIENT_CONFIG": str(config), "PYTHONUNBUFFERED": "1", "OPENAI_API_KEY": "sk-upstream"}
        return {**os.environ, "OMP_NUM_THREADS": "1", **given, **own}

    def _start(self, name: str) -> None:
        words = [{"0.0.0.0": "127.0.0.1", "8400": "0"}.get(w, w) for w in self.services[name]["command"]]
        process = self.processes[name] = ForkedProgram(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._folder,
            env=self.environment(name),
        )
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"at (http://\S+)/v1", line):
                self.urls[name] = found.group(1)
            if line.startswith("    try "):
                return
        pytest.fail(f"{name} ended")

    def end(self, name: str) -> int | None:
        """Stop a gateway as Docker does; return its exit status."""
        process = self.processes.get(name)
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        return process.returncode

    @cached_property
    def key(self) -> str:
        """A key made as ``docker compose exec gateway-1 specclient serve keys create alice`` does."""
        done = forked_program.run(
            [*COMMAND, "serve", "keys", "create", "alice"],
            text=True,
            cwd=self._folder,
            env=self.environment("gateway-1"),
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return self._known(done.stdout.strip())

    def make_key(self, name: str, **granted: Any) -> str:
        """Make another key, in this process."""
        store = KeyStore.of(self.ledger_url())
        assert store is not None
        token = new_token()
        try:
            store.add(new_key(name, token, datetime.now(UTC), **granted))
        finally:
            store.close()
        return self._known(token)

    def _known(self, key: str) -> str:
        """Wait until both gateways accept a key."""
        for name in GATEWAYS:
            assert wait_until(lambda name=name: self.get(name, "/ready", key).status_code == 200)
        return key

    def ledger_url(self) -> str:
        """Return the URL of the ledger with the password, which the gateways have in PGPASSWORD."""
        environment = self.environment("gateway-1")
        return environment["SPECCLIENT_LEDGER"].replace("@", f":{environment['PGPASSWORD']}@")

    def get(self, name: str, path: str, key: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.get(f"{self.urls[name]}{path}", headers=headers, timeout=60, trust_env=False)

    def ask(self, name: str, key: str) -> tuple[int, str | None]:
        """Send a call to a gateway; return the status and the code of the error."""
        body = {
            "model": "m-large",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 9,
            "specclient": {"tags": {"gateway": name}},
        }
        headers = {"authorization": f"Bearer {key}"}
        url = f"{self.urls[name]}/v1/chat/completions"
        answer = httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)
        return answer.status_code, answer.json().get("error", {}).get("code")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    with Topology(tmp_path_factory.mktemp("topology")) as started:
        yield started


def test_the_database_asks_for_the_password_of_the_environment(topology: Topology) -> None:
    url = topology.environment("gateway-1")["SPECCLIENT_LEDGER"]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url, password="another")


@pytest.mark.parametrize("name", GATEWAYS)
def test_health_needs_no_key_and_metrics_the_operators(topology: Topology, name: str) -> None:
    assert topology.get(name, "/health").json() == {"status": "ok"}
    file = ROOT / mounted(topology.services["prometheus"], "/etc/prometheus/prometheus.yml")
    (job,) = yaml.safe_load(file.read_text())["scrape_configs"]
    path = job.get("metrics_path", "/metrics")
    assert topology.get(name, path).status_code == 401
    metrics = topology.get(name, path, OPERATOR)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "\nspecclient:num_requests_running 0.0\n" in metrics.text


def test_a_key_works_at_both_gateways(topology: Topology) -> None:
    assert [topology.ask(name, topology.key) for name in GATEWAYS] == [(200, None)] * 2
    assert [topology.ask(name, "sk-unknown")[0] for name in GATEWAYS] == [401] * 2


def test_a_rate_limit_is_shared(topology: Topology) -> None:
    key = topology.make_key("limited", requests_per_minute=3)
    first, second = GATEWAYS
    assert [topology.ask(name, key)[0] for name in (first, first, second)] == [200] * 3
    for name in GATEWAYS:  # by itself, each would have accepted more
        assert topology.ask(name, key) == (429, "rate_limit_exceeded")


def test_a_budget_is_shared(topology: Topology) -> None:
    key = topology.make_key("poor", usd=Decimal("0.05"), period="day")
    first, second = GATEWAYS
    answers = [topology.ask(first, key)]
    while answers[-1][0] == 200 and len(answers) < 50:
        answers.append(topology.ask(first, key))
    assert len(answers) > 1
    assert answers[-1] == topology.ask(second, key) == (429, "insufficient_quota")


def test_gateways_stop_in_order_and_leave_all_rows(topology: Topology) -> None:
    key = topology.make_key("last")
    assert [topology.ask(name, key) for name in GATEWAYS for _ in range(3)] == [(200, None)] * 6
    assert [topology.end(name) for name in GATEWAYS] == [0, 0]
    ledger = Ledger(topology.ledger_url())
    try:
        rows = [row for row in ledger.rows() if row.tags.get("key") == "last"]
    finally:
        ledger.close()
    assert sorted(row.tags["gateway"] for row in rows) == ["gateway-1"] * 3 + ["gateway-2"] * 3
    assert all(row.status == "ok" and row.route == "openai/m-large" for row in rows)
