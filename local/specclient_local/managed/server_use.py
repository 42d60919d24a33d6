"""A program's use of a managed server: a shared lock while calls are in progress.

The lock tells the supervisor that the server is in use. The kernel releases it if the program is killed.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from specclient.runtime.forks import register_fork_reset
from specclient_local.managed.engine_folder import EngineFolder, locked_now, unlock


class ServerUse:
    """Counts the calls of this program in progress, and holds the lock ``users`` meanwhile. Thread-safe.

    Args:
        folder: the server's files.
    """

    def __init__(self, folder: EngineFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._calls, self._handle = 0, -1
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's calls in a forked child; closing the file does not release its lock."""
        self._lock = threading.Lock()
        self._calls = 0
        self._close()

    def begin(self) -> bool:
        """Note the begin of a call; return False if the server is being stopped as idle."""
        with self._lock:
            if not self._calls:
                if self._handle >= 0 and not os.fstat(self._handle).st_nlink:  # removed with its folder
                    self._close()
                if self._handle < 0:
                    self._handle = os.open(self._folder.users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                if not locked_now(self._handle, shared=True):
                    return False
            self._calls += 1
            return True

    def end(self) -> None:
        """Note the end of a call, and its time."""
        with self._lock:
            self._calls -= 1
            if not self._calls and self._handle >= 0:
                with suppress(OSError):
                    os.utime(self._handle)
                unlock(self._handle)

    def close(self) -> None:
        """Close the file unless calls are in progress; a later call opens it again."""
        with self._lock:
            if not self._calls:
                self._close()

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
