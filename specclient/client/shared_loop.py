"""The event loop of the synchronous clients. One thread at a time runs it: a caller, or a thread of its own.

A call that is alone runs in the thread that makes it. It then needs no switch of threads, and the data of the
interpreter stay in the caches of one processor. The loop's own thread runs it for streams, for calls that
overlap, and whenever no call is made, so that timers and closed connections are attended to.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from specclient.client.loop_tasks import LoopCall, LoopTask

__all__ = ["IDLE_S", "SharedLoop"]

#: Seconds in which nobody runs the loop after a call, so that the next one need not wait for it. What the
#: call has left to do on the loop may wait for so long.
IDLE_S = 0.05
#: Seconds after a call in which the loop's own thread runs the loop only for moments of ``_MOMENT_S``, once
#: in ``IDLE_S``; later, it waits for events on the loop.
_RECENT_S = 10.0
_MOMENT_S = 0.001
#: Seconds that a call waits for the loop's own thread to hand over the loop.
_HAND_OVER_S = 0.01


class SharedLoop(threading.Thread):
    """The event loop, and the thread that runs it while no caller does, until :meth:`stop`.

    The thread that runs the loop is its driver. All threads share ``_changed``, a condition over a reentrant
    lock, because a finalizer that makes a call may run while this thread holds it.
    """

    def __init__(self) -> None:
        super().__init__(name="specclient", daemon=True)
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._changed = threading.Condition()
        self._driver: int | None = None
        self._driven_call: LoopTask | None = None
        self._drives = 0
        self._released_at = self._called_at = 0.0
        self._unfinished = 0
        self._takers = 0
        self._sleeping = False
        self._stopping = False

    def is_driven_here(self) -> bool:
        """Return whether the calling thread runs the loop, so that a call from it would wait for itself."""
        here = threading.get_ident()
        return here in (self.ident, self._driver)

    def submit(self, task: LoopTask) -> None:
        """Start a task, whoever runs the loop."""
        with self._changed:
            self._unfinished += 1
            self._called_at = time.monotonic()
            if self._driver is None:
                self._changed.notify_all()
        task.start(self.loop, self._end, self.loop.call_soon_threadsafe)

    def take(self) -> bool:
        """Make the calling thread the driver, if no other work is on the loop; return whether it is."""
        with self._changed:
            if self._unfinished or self._stopping:
                return False
            if self._driver == self.ident:
                self.interrupt()
                self._takers += 1
                try:
                    self._changed.wait_for(lambda: self._driver != self.ident, _HAND_OVER_S)
                finally:
                    self._takers -= 1
            if self._driver is not None or self._stopping:
                return False
            self._driver = threading.get_ident()
            self._drives += 1
            return True

    def drive(self, call: LoopCall[Any], interrupted: Callable[[], bool]) -> None:
        """Start a call and run it in this thread, which has taken the loop; release the loop.

        Returns when the call or the loop ends, or when this thread is needed for something else. The loop's
        own thread then runs the rest of the call.

        Args:
            call: the call.
            interrupted: whether this thread is needed, asked after each :meth:`interrupt`.
        """
        try:
            with self._changed:
                self._unfinished += 1
                self._called_at = time.monotonic()
                self._driven_call = call
            call.start(self.loop, self._end, self.loop.call_soon)
            while not (call.has_ended or self._stopping or interrupted()):
                self.loop.run_forever()
        finally:
            self._release()

    def interrupt(self) -> None:
        """Make the driver look for something else to do, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self.loop.stop)

    def run(self) -> None:
        """Run the loop while no caller does (the thread's own function)."""
        # RuntimeError: at the interpreter's exit, asyncio cannot start the thread that joins its executor's
        with suppress(RuntimeError), asyncio.Runner(loop_factory=lambda: self.loop):
            try:
                while self._take_when_needed():
                    moment = None
                    if not self._unfinished and self._released_at - self._called_at < _RECENT_S:
                        moment = self.loop.call_later(_MOMENT_S, self.loop.stop)
                    self.loop.run_forever()
                    if moment is not None:
                        moment.cancel()  # it would stop the loop while it is closed
                    self._release()
                # Tasks that other threads have just asked for begin, and are cancelled as all others.
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            finally:
                self._stopping = True  # also if a task has raised SystemExit

    def stop(self) -> None:
        """Cancel the remaining tasks, and end the loop and its thread."""
        with self._changed:
            self._stopping = True
            self.interrupt()  # before the thread closes the loop, which must not be stopped meanwhile
            self._changed.notify_all()
        self.join()

    def sever(self) -> None:
        """In a forked child: release the parent's sockets, so that they close when the parent closes them.

        The file descriptors are replaced by ``/dev/null``, not closed, because the objects that own them stay
        alive as long as the child.
        """
        descriptors = [key.fd for key in list((self._selector.get_map() or {}).values())]
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (*descriptors, self._selector.fileno()):
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    def _take_when_needed(self) -> bool:
        """Wait until the loop has to be run by its own thread; return False once it has to end.

        A caller that returns the loop wakes this thread only if there is work for it, or if the call has
        taken long. Otherwise this thread looks by itself, after ``IDLE_S``.
        """
        drive = -1
        with self._changed:
            while True:
                wait_s: float | None = IDLE_S
                if self._driver is None:
                    idle_s = time.monotonic() - self._released_at
                    if self._unfinished or self._stopping or idle_s >= IDLE_S:
                        self._driver = self.ident
                        return not self._stopping
                    wait_s = IDLE_S - idle_s
                elif drive == self._drives:
                    wait_s = None
                drive = self._drives
                self._sleeping = wait_s is None
                self._changed.wait(wait_s)

    def _release(self) -> None:
        with self._changed:
            self._driver = self._driven_call = None
            self._released_at = time.monotonic()
            if self._unfinished or self._takers or self._sleeping or self._stopping:
                self._changed.notify_all()

    def _end(self, task: LoopTask) -> None:
        with self._changed:
            self._unfinished -= 1
        if task is self._driven_call:
            self.loop.stop()
