"""The supervisor: runs one server, and ends it when nobody uses it or its owner asks for it.

It writes the state file, and ends with the server: if the server ends by itself, the next call starts a new
supervisor (:mod:`.supervisor_process`), after a back-off that grows with the number of failures in a row.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specclient.errors import EngineError
from specclient.runtime.backoff import doubled
from specclient_local.managed.engine_folder import (
    EngineFolder,
    ManagedState,
    Phase,
    locked_now,
    opened_lock,
)
from specclient_local.managed.guard import Guard, GuardTask
from specclient_local.managed.handshake import UnsuitableServerError, checked_command
from specclient_local.managed.launch_spec import LaunchSpec, filled
from specclient_local.managed.process_tree import descendants, kill_below, listens, reap_all
from specclient_local.managed.readiness import Readiness, probe, served_name
from specclient_local.managed.server_log import advice_of, last_lines, telling_lines

STABLE_S = 60.0
"""Seconds that a server must have been ready for its end not to count as a further failure."""
MAX_WAIT_S = 300.0
"""Maximum seconds between a failure and the next start."""

_FORGOTTEN_S = 2 * MAX_WAIT_S
_LOOK_S, _PROBE_S = 0.1, 0.25


class _StopRequestedError(Exception):
    """A signal asked for the end while the supervisor waits for another program."""


class Supervisor:
    """Runs one server.

    Args:
        spec: the server.
        folder: its files.
    """

    def __init__(self, spec: LaunchSpec, folder: EngineFolder) -> None:
        self._spec, self._folder = spec, folder
        before = folder.read_state()
        self._last_port = 0 if before is None else before.port
        forgets = spec.fresh or before is None or time.time() - before.since > _FORGOTTEN_S
        self._key = secrets.token_urlsafe(24)
        self._log_begin = folder.log.stat().st_size if folder.log.exists() else 0
        self._stopping = self._interrupts = False
        self._ready_s: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, lambda *_: None)
        folder.users.touch(mode=0o600)
        self._state = ManagedState(
            name=spec.name,
            engine=spec.engine,
            title=spec.title,
            phase="starting",
            run=secrets.token_hex(8),
            supervisor=os.getpid(),
            model=spec.served_name,
            keep_alive=spec.keep_alive,
            since=time.time(),
            failures=0 if forgets or before is None else before.failures,
            log=str(folder.log),
        )
        self._write()

    def _on_signal(self, *_: Any) -> None:
        self._stopping = True
        if self._interrupts:
            raise _StopRequestedError

    def run(self) -> None:
        """Start the server, wait until it answers, and look after it until it has ended."""
        self._interrupts = True
        try:
            command, dropped = checked_command(self._spec, environment(self._spec, self._key, 0))
        except UnsuitableServerError as error:
            self.end("failed", str(error), log=False)
            return
        except _StopRequestedError:
            self.end("stopped")
            return
        finally:
            self._interrupts = False
        port = free_port(self._last_port)
        guard = Guard(
            GuardTask(
                command=[filled(word, port=port, key=self._key) for word in command],
                env=environment(self._spec, self._key, port),
                folder=self._folder.path,
                log=self._folder.log,
                secrets=(self._key,),
            )
        )
        metrics = not set(dropped).isdisjoint(self._spec.telemetry_options)
        self._write(port=port, key=self._key, metrics=metrics)
        if self._await_answer(guard, port):
            self._watch(guard)

    def _await_answer(self, guard: Guard, port: int) -> bool:
        """Wait until the server answers, and return whether it does."""
        end, next_probe = time.monotonic() + self._spec.start_s, 0.0
        while self._goes_on(guard):
            if time.monotonic() >= next_probe:
                found = probe(port, self._key)
                if found is not None and self._has_answered(guard, port):
                    return self._note_ready(guard, found)
                next_probe = time.monotonic() + _PROBE_S
            if time.monotonic() > end:
                self._shut_down(guard)
                self.end("failed", f"it did not answer within start_s = {self._spec.start_s:g} s")
                return False
            time.sleep(_LOOK_S)
        return False

    def _has_answered(self, guard: Guard, port: int) -> bool:
        """Return whether the server itself has answered, and not another program at its port."""
        guard.look()
        return guard.server > 0 and listens(descendants(guard.pid), port) is not False

    def _note_ready(self, guard: Guard, found: Readiness) -> bool:
        """Note that the server is ready; return False if the model's name in requests is unknown."""
        model = served_name(self._spec.served_name, found.models)
        if model is None:
            self._shut_down(guard)
            listed = ", ".join(found.models[:20]) or "none"
            self.end("failed", f"its models are {listed}; name one of them in served_name", log=False)
            return False
        self._ready_s = time.monotonic()
        self._write(
            phase="ready",
            since=time.time(),
            pid=guard.server,
            model=model,
            keyed=found.keyed,
            was_ready=True,
        )
        return True

    def _watch(self, guard: Guard) -> None:
        """Wait until the server ends, is to be stopped, or is idle."""
        while self._goes_on(guard):
            if self._is_idle() and self._stopped_as_idle(guard):
                return
            time.sleep(_LOOK_S)

    def _is_idle(self) -> bool:
        """Return whether the last call ended long ago; calls may be in progress."""
        if not self._spec.keep_alive:
            return False
        last = max(self._folder.mtime(self._folder.users), self._state.since)
        return time.time() - last >= self._spec.keep_alive

    def _stopped_as_idle(self, guard: Guard) -> bool:
        """Stop the server unless calls are in progress, and return whether it was stopped.

        No program can begin a call while this holds the lock ``users``.
        """
        with opened_lock(self._folder.users) as users:
            if not (locked_now(users) and self._is_idle()):
                return False
            self._write(phase="stopping", since=time.time())
            self._shut_down(guard)
            self.end("stopped")
            return True

    def _goes_on(self, guard: Guard) -> bool:
        """Return whether the server runs on; note its end, and stop it if that was asked for."""
        guard.look()
        if guard.server and guard.server != self._state.pid:
            self._write(pid=guard.server)
        self._look_for_killed(guard)
        if guard.ended is not None:
            kill_below(os.getpid())
            self.end("failed", guard.ended)
            return False
        if self._stopping:
            self._write(phase="stopping", since=time.time())
            self._shut_down(guard)
            self.end("stopped")
            return False
        return True

    def _shut_down(self, guard: Guard) -> None:
        """End the server and all its processes."""
        guard.stop()
        while guard.ended is None:
            guard.look()
            self._look_for_killed(guard)
            time.sleep(0.02)
        kill_below(os.getpid())

    def _look_for_killed(self, guard: Guard) -> None:
        if guard.pid in reap_all():
            guard.look()
            guard.note_killed()

    def end(self, phase: Phase, why: str = "", *, log: bool = True) -> None:
        """Write the last state.

        Args:
            phase: ``stopped`` or ``failed``.
            why: why it failed.
            log: whether the log says more.
        """
        over: dict[str, Any] = {"phase": phase, "since": time.time(), "key": "", "pid": 0, "supervisor": 0}
        if phase == "stopped":
            self._write(**over, failures=0)
            return
        stable = self._ready_s is not None and time.monotonic() - self._ready_s >= STABLE_S
        failures = 0 if stable else self._state.failures + 1
        wait_s = doubled(1.0, failures - 1, MAX_WAIT_S) if failures else 0.0
        error = self._explained(why) if log else f"{why}."
        self._write(
            **over,
            failures=failures,
            next_start=time.time() + wait_s,
            error=error.replace(self._key, "[key]"),
        )

    def _explained(self, why: str) -> str:
        """Return why the server ended, with the last lines of its log and the way out."""
        lines = last_lines(self._folder.log, self._log_begin)
        advice, said = advice_of(lines), " | ".join(telling_lines(lines))
        quoted = f"{why}. Its log ends: {said}." if said else f"{why}, and wrote nothing to its log."
        return f"{quoted} {advice[0].upper()}{advice[1:]}." if advice else quoted

    def _write(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        with suppress(OSError):  # a full disk: the state stays outdated, which programs see by the locks
            self._folder.write_state(self._state)


def environment(spec: LaunchSpec, key: str, port: int) -> dict[str, str]:
    """Return the environment of a server: this one's without API keys, and the variables of its table."""
    own = {name: value for name, value in os.environ.items() if not _may_be_key(name)}
    return own | {name: filled(value, port=port, key=key) for name, value in spec.env.items()}


def _may_be_key(name: str) -> bool:
    return name.endswith(("_API_KEY", "_ADMIN_KEY", "_SERVER_KEY"))


def free_port(wanted: int) -> int:
    """Return a free port of this machine: that of the last run if possible, which programs know already.

    Raises:
        EngineError: there is none.
    """
    for port in dict.fromkeys((wanted, 0)):
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            try:
                own.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen: int = own.getsockname()[1]
            return chosen
    raise EngineError("no port of this machine is free")
