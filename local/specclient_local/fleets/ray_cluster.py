"""Commands on the Ray cluster of a fleet, in a process of the environment that has Ray."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specclient.errors import ConfigurationError, EngineError
from specclient_local.fleets.fleet import Fleet
from specclient_local.fleets.local_cluster import LocalCluster
from specclient_local.fleets.serve_config import http_options, serve_application

__all__ = ["LOCAL", "REQUESTS", "FleetCluster"]

LOCAL = "local"
"""The address of the cluster on this machine that is started for fleets."""

REQUESTS = Path(__file__).with_name("ray_requests.py")
"""The program that sends requests by Ray Data; see :meth:`FleetCluster.invocation`."""

_PROGRAM = Path(__file__).with_name("ray_program.py")
_CONNECT_S = 5.0
_SHORT_S = 180.0
"""Seconds for commands that wait for no replica: Ray's import and connection take most of them."""

Progress = Callable[[str], None]


class FleetCluster:
    """The cluster of a fleet.

    Args:
        fleet: the fleet, which names the cluster and the interpreter with Ray.
        local: the cluster on this machine; None for the user's.
    """

    def __init__(self, fleet: Fleet, local: LocalCluster | None = None) -> None:
        self._fleet = fleet
        self._local = LocalCluster() if local is None else local

    def deploy(self, on_line: Progress) -> dict[str, Any]:
        """Deploy the fleet, and wait until it answers.

        A local cluster is started if none runs; it is stopped again if the fleet does not get ready and was
        to be its first one.

        Raises:
            ConfigurationError: the cluster is away, or the interpreter is missing.
            EngineError: the fleet cannot run there, or does not get ready.
        """
        began = self._fleet.address == LOCAL and self._local.running() is None
        if began:
            self._local.start(self._python(), on_line)
        try:
            return self._wait_for("deploy", on_line)
        except BaseException:
            if began:
                self._local.stop()
            raise

    def update(self, on_line: Progress) -> dict[str, Any]:
        """Replace the fleet's configuration, replica by replica; raises as :meth:`deploy`."""
        return self._wait_for("update", on_line)

    def status(self, *, every: bool = False) -> dict[str, Any]:
        """Return the state of the fleet, or of every fleet on its cluster; raises as :meth:`deploy`."""
        if self._is_off():
            return {"fleets": {}, "metrics": []}
        found: dict[str, Any] = self._ask("status", {} if every else {"name": self._fleet.name})
        return found

    def logs(self, lines: int) -> dict[str, list[str]]:
        """Return the last lines of each replica's log, by file; raises as :meth:`deploy`."""
        found: dict[str, list[str]] = {}
        if not self._is_off():
            found = self._ask("logs", {"name": self._fleet.name, "lines": lines})
        return found

    def stop(self, *, force: bool = False) -> bool:
        """Remove the fleet, and return whether it was there. The local cluster ends with its last fleet.

        A local cluster that does not answer is ended by its processes.

        Args:
            force: whether an application of this name that specclient did not deploy is removed, too.

        Raises:
            ConfigurationError: a cluster elsewhere is away.
            EngineError: the application is not specclient's.
        """
        if self._is_off():
            return self._local.stop()
        try:
            found = self._ask("stop", {"name": self._fleet.name, "force": force})
        except (ConfigurationError, EngineError):
            if self._fleet.address != LOCAL or not force:
                raise
            return self._local.stop()
        if self._fleet.address == LOCAL and not found["left"]:
            self._local.stop()
        stopped: bool = found["stopped"]
        return stopped

    def recorded_sizes(self, application: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Return the numbers of replicas of a deployed application, by pool."""
        found = {}
        for model in application["args"]["llm_configs"]:
            deployment = model["deployment_config"]
            scaling = deployment.get("autoscaling_config")
            least = deployment.get("num_replicas", 1) if scaling is None else scaling["min_replicas"]
            most = least if scaling is None else scaling["max_replicas"]
            found[model["model_loading_config"]["model_id"]] = (least, most)
        return found

    def invocation(self, program: Path, *words: str) -> tuple[list[str], Mapping[str, str] | None]:
        """Return the command that runs a program with Ray, and its environment, None for this one's.

        Args:
            program: the file, whose first argument is the cluster's address.
            words: its further arguments.

        Raises:
            ConfigurationError: the cluster is away, or the interpreter is missing.
        """
        environment = self._local.environment if self._fleet.address == LOCAL else None
        return [self._python(), str(program), self._address(), *words], environment

    def _wait_for(self, command: str, on_line: Progress) -> dict[str, Any]:
        """Run a command that waits for replicas."""
        seconds = self._fleet.start_s + _SHORT_S
        found: dict[str, Any] = self._ask(command, self._request(), on_line, seconds)
        return found

    def _is_off(self) -> bool:
        return self._fleet.address == LOCAL and self._local.running() is None

    def _request(self) -> dict[str, Any]:
        fleet = self._fleet
        share = {"CPU": fleet.cpus / fleet.devices, **({"GPU": 1.0} if fleet.gpus else {})}
        paths = [fleet.deployment.target, *filter(None, [fleet.deployment.draft])]
        return {
            "application": serve_application(fleet, secrets=True),
            "http": http_options(fleet),
            "bundle": share,
            "devices": sum(pool.least for pool in fleet.pools) * fleet.devices,
            "paths": [path for path in paths if path.startswith("/")],
            "start_s": fleet.start_s,
        }

    def _python(self) -> str:
        python = self._fleet.python or sys.executable
        if not os.access(python, os.X_OK):
            raise ConfigurationError(
                f"fleet {self._fleet.name!r}: python is {python!r}, which is not a program; name the "
                f"interpreter "
                "of an environment with Ray, such as ~/envs/vllm/bin/python"
            )
        return python

    def _address(self) -> str:
        """Return the cluster's address, after a connection to it.

        Raises:
            ConfigurationError: nothing answers there.
        """
        address = self._fleet.address
        if address == LOCAL:
            found = self._local.running()
            if found is None:
                raise ConfigurationError(
                    f"fleet {self._fleet.name!r} is not running: no local cluster runs; start it with "
                    f"`specclient fleet deploy {self._fleet.name}`"
                )
            return found.address
        if address == "auto":
            return address
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        if parts.scheme != "ray":
            raise ConfigurationError(
                f"fleet {self._fleet.name!r}: the cluster's address is {address!r}; write ray://HOST:10001, "
                "or HOST:6379 or auto on one of its nodes"
            )
        try:
            port = parts.port or 10001
            with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
                return address
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"fleet {self._fleet.name!r}: the cluster at {address} is away ({error}); start it, or set "
                'address, or RAY_ADDRESS, to its address, or address = "local"'
            ) from None

    def _ask(
        self,
        command: str,
        request: Mapping[str, Any],
        on_line: Progress | None = None,
        seconds: float = _SHORT_S,
    ) -> Any:
        """Run a command in a process of the environment with Ray, and return its answer."""
        arguments, environment = self.invocation(_PROGRAM, command)
        with subprocess.Popen(  # noqa: S603 - the user's own interpreter
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # an interrupt reaches it once, from here
        ) as process:
            return _Conversation(process, on_line).run(request, seconds)


class _Conversation:
    """The exchange with one process of :mod:`specclient_local.fleets.ray_program`."""

    def __init__(self, process: subprocess.Popen[str], on_line: Progress | None) -> None:
        self._process = process
        self._on_line = on_line
        self._errors: list[str] = []

    def run(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Send the request, and return the answer.

        Raises:
            EngineError: the command failed, ended without an answer, or took too long.
        """
        process, late = self._process, threading.Event()
        assert process.stdin is not None
        assert process.stdout is not None

        def interrupt() -> None:
            late.set()
            process.send_signal(signal.SIGINT)  # it then takes back what it has begun

        timer = threading.Timer(seconds, interrupt)
        reader = threading.Thread(target=self._read_errors, daemon=True)
        timer.start()
        reader.start()
        answer: Mapping[str, Any] | None = None
        try:
            with suppress(BrokenPipeError):
                json.dump(request, process.stdin)
                process.stdin.close()
            for line in process.stdout:
                if line.startswith("@"):
                    answer = json.loads(line[1:])
                elif line.startswith("#") and self._on_line is not None:
                    self._on_line(line[1:].strip())
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            timer.cancel()
            reader.join(1.0)
        if answer is None:
            why = f"no answer within {seconds:g} s" if late.is_set() else self._last_words(process.returncode)
            raise EngineError(f"Ray: {why}")
        if "error" in answer:
            raise EngineError(f"Ray: {answer['error']}")
        return answer["answer"]

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line.strip()]

    def _last_words(self, status: int) -> str:
        said = " | ".join(filter(None, self._errors[-3:]))[-600:]
        return f"the process ended with status {status}" + (f": {said}" if said else "")
