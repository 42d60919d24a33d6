"""The server of one configured model, as a program that calls it sees it: started, shared, released.

:meth:`EngineServer.acquire` takes microseconds while the server runs: two file locks, the status of the state
file, and the question whether the process lives. Otherwise it starts a supervisor and waits for the state
``ready``; several programs that do so at the same time start one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
import anyio.to_thread

from specclient.errors import EngineError
from specclient.types.backend import ServerAddress
from specclient_local.managed.engine_folder import (
    EngineFolder,
    ManagedState,
    all_folders,
    engines_folder,
    locked_soon,
    opened_lock,
)
from specclient_local.managed.launch_plan import launch_spec
from specclient_local.managed.managed_models import ManagedModel
from specclient_local.managed.process_tree import is_running
from specclient_local.managed.server_log import last_lines
from specclient_local.managed.server_use import ServerUse
from specclient_local.managed.supervisor_process import start_supervisor

PATIENCE_S = 5.0
"""Maximum seconds that a call waits for the back-off of a server that has failed; it is told longer ones."""

_LOOK_S, _SOON_S = 0.1, 0.02
_STARTS = 3
"""Number of starts that one call asks for if the supervisors are killed."""
_KEPT_S = 7 * 86_400.0
"""Seconds for which the folder of a server that has ended is kept."""

_log = logging.getLogger("specclient")


class EngineServer:
    """Starts the server of a model and keeps it while calls are in progress.

    Implements :class:`specclient.types.backend.ModelServer`.

    Args:
        model: the model of the configuration.
    """

    def __init__(self, model: ManagedModel) -> None:
        self.model = model
        self.provider, self.title = model.kind.provider, model.kind.title
        self.template = model.template
        self.refused: Sequence[str] = model.refused
        self.folder = EngineFolder(engines_folder() / model.folder_name)
        self._use = ServerUse(self.folder)
        #: Status of the state file when it was read, the state, and the address. Replaced as a whole, because
        #: several threads use it.
        self._read: tuple[tuple[int, int, int], ManagedState, ServerAddress] | None = None

    async def acquire(self) -> ServerAddress:
        """Start the server unless it runs; see :class:`specclient.types.backend.ModelServer`."""
        address = self._acquired()
        if address is not None:
            return address
        wait = _Wait(self)
        while True:
            seconds = wait.step()
            if seconds is None:
                await anyio.to_thread.run_sync(wait.start)
            else:
                await anyio.sleep(seconds)
            if (address := self._acquired()) is not None:
                return address

    def release(self) -> None:
        """Note that a call has ended."""
        self._use.end()

    def start(self, progress: Callable[[str], None], *, fresh: bool = True) -> ManagedState:
        """Start the server unless it runs, and wait until it answers, as commands do.

        Args:
            progress: called with each new last line of the server's log.
            fresh: whether earlier failures, and the wait after them, are forgotten.

        Raises:
            ConfigurationError, EngineError: see :class:`specclient.types.backend.ModelServer`.
        """
        wait, shown = _Wait(self, fresh=fresh), ""
        while self._acquired() is None:
            seconds = wait.step()
            if seconds is None:
                wait.start()
            else:
                time.sleep(seconds)
            line = (last_lines(self.folder.log, wait.log_begin) or [""])[-1]
            if line and line != shown:
                progress(line)
                shown = line
        self.release()
        state = self.current_state()
        assert state is not None
        return state

    def close(self) -> None:
        """Close the files of this program. The server runs on, for other programs and later calls."""
        self._use.close()

    def _acquired(self) -> ServerAddress | None:
        """Begin a call if the server runs, and return its address."""
        found = self._current()
        if found is None or found[1].phase != "ready" or not self._use.begin():
            return None
        found = self._current()  # under the lock, with which it is not stopped as idle
        if found is not None:
            _, state, address = found
            if state.phase == "ready" and is_running(state.pid) and self.folder.is_alive():
                return address
        self._use.end()
        return None

    def current_state(self) -> ManagedState | None:
        """Return the state; None if the server has never been started."""
        found = self._current()
        return None if found is None else found[1]

    def _current(self) -> tuple[tuple[int, int, int], ManagedState, ServerAddress] | None:
        """Return the state file's content, read again only if the file has changed."""
        try:
            status = self.folder.state_file.stat()
        except OSError:
            return None
        seen, known = (status.st_mtime_ns, status.st_ino, status.st_size), self._read
        if known is None or known[0] != seen:
            state = self.folder.read_state()
            if state is None:
                return None
            address = ServerAddress(state.base_url, state.key, state.model, state.metrics)
            self._read = known = seen, state, address
        return known


class _Wait:
    """The wait of one call for its server.

    Args:
        server: the server.
        fresh: whether earlier failures are forgotten.

    Attributes:
        log_begin: size of the log when the wait began.
    """

    def __init__(self, server: EngineServer, *, fresh: bool = False) -> None:
        self._server, self._fresh = server, fresh
        self._run, self._starts = "", 0
        self.log_begin = server.folder.log.stat().st_size if server.folder.log.exists() else 0

    def step(self) -> float | None:
        """Return the seconds until the next look; None if the server must be started.

        Raises:
            EngineError: the start that this call waits for has failed, or an earlier run has and the back-off
                is long.
        """
        alive = self._server.folder.is_alive()
        state = self._server.current_state()
        if alive:
            if state is not None and state.phase == "starting":
                self._run = state.run
                return _LOOK_S
            return _SOON_S
        if state is None or state.phase != "failed":
            return None
        if state.run == self._run and not state.was_ready:
            raise _failure(state)
        left_s = min(state.next_start - time.time(), 3600.0)
        if self._fresh or left_s <= 0:
            return None
        if left_s > PATIENCE_S:
            raise _failure(state, left_s)
        return min(left_s, _LOOK_S)

    def start(self) -> None:
        """Start a supervisor unless one lives. Blocks for a fraction of a second.

        Raises:
            ConfigurationError, EngineError: it cannot be started.
        """
        folder, model = self._server.folder, self._server.model
        self._starts += 1
        if self._starts > _STARTS:
            state = self._server.current_state()
            if state is not None and state.phase == "failed":
                raise _failure(state)
            raise EngineError(
                f"the supervisor of local/{model.name} was ended {_STARTS} times; its output is in "
                f"{folder.path / 'supervisor.log'}"
            )
        spec = launch_spec(model, folder, fresh=self._fresh)
        folder.make()
        with opened_lock(folder.start) as handle:
            if locked_soon(handle, 60.0) and not folder.is_alive():
                _log.info(
                    "starting %s for local/%s; its log is %s", self._server.title, model.name, folder.log
                )
                start_supervisor(spec)
                state = self._server.current_state()
                self._run, self._fresh = "" if state is None else state.run, False
        remove_old_folders()


def _failure(state: ManagedState, left_s: float = 0.0) -> EngineError:
    """Return the error of a failed run, a paragraph.

    Args:
        left_s: seconds until a call may start it again, if it must wait.
    """
    times = f" {state.failures} times in a row; the last time" if state.failures > 1 else ":"
    later = f" A call in {left_s:.0f} s starts it again." if left_s > 0 else ""
    return EngineError(
        f"the {state.title} server of local/{state.name} failed{times} {state.error}{later} Its log is "
        f"{state.log}"
    )


def remove_old_folders() -> None:
    """Remove the folders of servers that ended a week ago: each changed configuration has its own folder."""
    for folder in all_folders():
        age_s = time.time() - folder.mtime(folder.state_file)
        if age_s < _KEPT_S or not folder.state_file.exists() or folder.is_alive():
            continue
        with suppress(OSError), opened_lock(folder.start) as handle:
            if locked_soon(handle, 0.0) and not folder.is_alive():
                for file in folder.path.iterdir():
                    file.unlink()
                folder.path.rmdir()
