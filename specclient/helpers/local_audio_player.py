"""Playback on the default output device."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from specclient.helpers.sound_devices import SAMPLE_RATE, numpy, sounddevice

#: Pieces of a stream that wait to be played.
_WAITING = 50
#: Seconds that the device waits for a piece before it plays silence.
_WAIT_S = 0.1
_PIECE_BYTES = 1024


class LocalAudioPlayer:
    """Plays sound of one channel, with 24,000 samples a second.

    Args:
        should_stop: called for each piece of :meth:`play`; True ends it. None plays to the end.
    """

    def __init__(self, should_stop: Callable[[], bool] | None = None) -> None:
        self.channels = 1
        self.dtype: Any = numpy().float32
        self.should_stop = should_stop

    async def play(self, input: Any) -> None:  # noqa: A002 - the API's name
        """Play a sound to its end.

        Args:
            input: a numpy array of ``int16`` or ``float32``, or an answer of ``client.audio.speech`` with
                ``response_format="pcm"``.

        Raises:
            ValueError: the array has another type.
            ConfigurationError: a package for sound is missing.
        """
        np, devices = numpy(), sounddevice()
        if not isinstance(input, np.ndarray):
            sound = _floats(np, np.frombuffer(await _bytes_of(input), dtype=np.int16)).reshape(-1, 1)
        elif input.dtype == np.int16:
            sound = _floats(np, input).reshape(-1, self.channels)
        elif input.dtype == np.float32:
            sound = input
        else:
            raise ValueError(f"Unsupported dtype: {input.dtype}")
        loop, ended, at = asyncio.get_running_loop(), asyncio.Event(), 0

        def give(out: Any, frames: int, _time: Any, _status: Any) -> None:
            nonlocal at
            left = len(sound) - at
            if left == 0 or (callable(self.should_stop) and self.should_stop()):
                loop.call_soon_threadsafe(ended.set)
                raise devices.CallbackStop
            count = min(left, frames)
            out[:count] = sound[at : at + count]
            out[count:] = 0
            at += count

        with devices.OutputStream(
            samplerate=SAMPLE_RATE, callback=give, dtype=sound.dtype, channels=sound.shape[1]
        ):
            await ended.wait()

    async def play_stream(self, buffer_stream: AsyncGenerator[Any, None]) -> None:
        """Play pieces of a sound as they come, to the end of the stream or to None in it.

        Args:
            buffer_stream: yields numpy arrays of ``int16`` or ``float32``, of shape (samples, 1).

        Raises:
            ConfigurationError: a package for sound is missing.
        """
        devices = sounddevice()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        waiting: queue.Queue[Any] = queue.Queue(maxsize=_WAITING)

        async def fill() -> None:
            async for piece in buffer_stream:
                if piece is None:
                    break
                await loop.run_in_executor(None, waiting.put, piece)
            await loop.run_in_executor(None, waiting.put, None)  # the end

        player = _PieceReader(waiting, self.dtype)

        def give(out: Any, frames: int, _time: Any, _status: Any) -> None:
            if not player.fill(out, frames):
                loop.call_soon_threadsafe(ended.set)
                raise devices.CallbackStop

        filling = asyncio.create_task(fill())
        with devices.OutputStream(
            samplerate=SAMPLE_RATE, channels=self.channels, dtype=self.dtype, callback=give
        ):
            await ended.wait()
        await filling


class _PieceReader:
    """Reads samples from pieces in a queue; used in the device's thread.

    Args:
        waiting: the pieces, with None after the last one.
        dtype: numpy's type of a sample of the device.
    """

    def __init__(self, waiting: queue.Queue[Any], dtype: Any) -> None:
        self._waiting = waiting
        self._dtype = dtype
        self._piece: Any = ()
        self._at = 0

    def fill(self, out: Any, frames: int) -> bool:
        """Fill a buffer of the device, with silence where no piece came in time; False at the end."""
        filled = 0
        while filled < frames:
            if self._at >= len(self._piece):
                try:
                    piece = self._waiting.get(timeout=_WAIT_S)
                except queue.Empty:
                    break
                if piece is None:
                    return False
                np = numpy()
                as_floats = piece.dtype == np.int16 and self._dtype == np.float32
                self._piece, self._at = (_floats(np, piece) if as_floats else piece), 0
            count = min(len(self._piece) - self._at, frames - filled)
            out[filled : filled + count] = self._piece[self._at : self._at + count]
            filled, self._at = filled + count, self._at + count
        out[filled:] = 0
        return True


def _floats(np: Any, samples: Any) -> Any:
    """Return 16-bit samples as floats from -1 to 1."""
    return samples.astype(np.float32) / 32767.0


async def _bytes_of(answer: Any) -> bytes:
    """Return the content of an answer, which may be read asynchronously."""
    pieces = answer.iter_bytes(chunk_size=_PIECE_BYTES)
    if isinstance(pieces, AsyncIterator):
        return b"".join([piece async for piece in pieces])
    return b"".join(pieces)
