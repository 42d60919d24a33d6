"""Recording from the default input device."""

from __future__ import annotations

import asyncio
import io
import time
import wave
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from specclient.helpers.sound_devices import SAMPLE_RATE, numpy, sounddevice

DType = TypeVar("DType")
#: A file as calls of the API take it: its name, its content and its type.
WaveFile = tuple[str, io.BytesIO, str]


class Microphone(Generic[DType]):
    """Records sound until it is told to stop.

    Args:
        channels: the number of channels.
        dtype: numpy's type of a sample: an integer, or ``float32`` from -1 to 1. None for ``int16``.
        should_record: called for each piece of sound; False ends the recording. None records until the
            timeout.
        timeout: the longest recording, in seconds; None for no limit.
    """

    def __init__(
        self,
        channels: int = 1,
        dtype: type[DType] | None = None,
        should_record: Callable[[], bool] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.channels = channels
        self.dtype: Any = numpy().int16 if dtype is None else dtype
        self.should_record = should_record
        self.buffer_chunks: list[Any] = []
        self.timeout = timeout
        self.has_record_function = callable(should_record)

    @overload
    async def record(self, return_ndarray: Literal[True]) -> Any: ...

    @overload
    async def record(self, return_ndarray: Literal[False] | None = ...) -> WaveFile: ...

    async def record(self, return_ndarray: bool | None = False) -> Any:
        """Record, and return the sound.

        Args:
            return_ndarray: whether the result is a numpy array of shape (samples, channels), in place of a
                WAV file for ``client.audio.transcriptions.create(file=…)``.

        Raises:
            ConfigurationError: a package for sound is missing.
        """
        devices, np = sounddevice(), numpy()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.buffer_chunks = []
        started = time.perf_counter()

        def take(sound: Any, _frames: int, _time: Any, _status: Any) -> None:
            too_long = self.timeout is not None and time.perf_counter() - started > self.timeout
            if too_long or (callable(self.should_record) and not self.should_record()):
                loop.call_soon_threadsafe(ended.set)
                raise devices.CallbackStop
            self.buffer_chunks.append(sound.copy())

        with devices.InputStream(
            callback=take, dtype=self.dtype, samplerate=SAMPLE_RATE, channels=self.channels
        ):
            await ended.wait()
        pieces = self.buffer_chunks
        sound = np.concatenate(pieces, axis=0) if pieces else np.array([], dtype=self.dtype)
        return sound if return_ndarray else self._wave_file(sound)

    def _wave_file(self, sound: Any) -> WaveFile:
        """Return samples as a file: floats as 16-bit integers, 8-bit integers without sign, as in WAV."""
        np = numpy()
        if sound.dtype == np.float32:
            sound = (np.clip(sound, -1, 1) * np.iinfo(np.int16).max).astype(np.int16)
        elif sound.dtype == np.int8:
            sound = (sound.astype(np.int16) + 128).astype(np.uint8)
        content = io.BytesIO()
        with wave.open(content, "w") as file:
            file.setnchannels(self.channels)
            file.setsampwidth(sound.dtype.itemsize)
            file.setframerate(SAMPLE_RATE)
            file.writeframes(sound.tobytes())
        content.seek(0)
        return ("audio.wav", content, "audio/wav")
