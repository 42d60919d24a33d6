"""A sound card in place of PortAudio's, which test machines lack: it calls back as ``sounddevice`` does."""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy


class CallbackStop(Exception):
    """Raised by a callback that wants no further calls."""


class _Stream:
    """Calls back from a thread of its own until the callback stops, or the stream is left."""

    def __init__(self, *, callback: Any, dtype: Any, samplerate: int, channels: int) -> None:
        assert samplerate == 24_000
        self._callback, self._left = callback, threading.Event()
        self._dtype, self._channels = dtype, channels
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._left.is_set():
                self._turn()
        except CallbackStop:
            pass

    def _turn(self) -> None:
        raise NotImplementedError


class SoundCard:
    """The module ``sounddevice``, with a fixed input.

    Attributes:
        module: to be found as ``sounddevice``.
        played: the buffers that were played, in order.
    """

    def __init__(self, recorded: Iterator[Any] | None = None, frames: int = 4) -> None:
        self.played: list[Any] = []
        card = self

        class InputStream(_Stream):
            def _turn(self) -> None:
                assert recorded is not None
                self._callback(next(recorded).astype(self._dtype), frames, None, None)

        class OutputStream(_Stream):
            def _turn(self) -> None:
                out = numpy.full((frames, self._channels), 9, dtype=self._dtype)
                self._callback(out, frames, None, None)
                card.played.append(out)

        self.module = types.ModuleType("sounddevice")
        vars(self.module).update(
            InputStream=InputStream, OutputStream=OutputStream, CallbackStop=CallbackStop
        )
