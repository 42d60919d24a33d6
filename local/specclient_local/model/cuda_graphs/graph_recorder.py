"""Recording of functions over fixed buffers as CUDA graphs."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import torch

from specclient.errors import EngineError

RecordedRun = Callable[[], None]

_log = logging.getLogger("specclient")

_WARM_UPS = 2
"""Runs before a recording: the first lets libraries and Triton choose kernels, the second uses them."""

MAX_RECORDINGS = 24
"""Recordings of rounds, and of passes, that are kept."""

Shape = TypeVar("Shape", bound=Hashable)
Recording = TypeVar("Recording")

_CAPTURE = threading.RLock()
"""Held while a graph is recorded: a process can record one graph at a time."""


class GraphRecorder:
    """Records functions as CUDA graphs that share one memory pool. Other devices run them unchanged.

    A recorded function must read its inputs from, and write its results to, tensors that outlive it, and
    must be repeatable: it runs before it is recorded. Graphs of one pool must not run concurrently; in an
    engine one thread owns the device.

    Args:
        device: the device of the functions.
        records: whether to record on CUDA. Without recording, runs are slower, but errors show their
            location.

    Attributes:
        records: whether functions are recorded; false after a recording has failed.
        recorded: number of graphs recorded.
        simplify: called when a recording has failed, before the function runs unrecorded. They replace what
            may have failed, such as kernels that need a compiler.
    """

    def __init__(self, device: torch.device, *, records: bool = True) -> None:
        self.device = device
        self.records = records and device.type == "cuda"
        self.recorded = 0
        self.simplify: list[Callable[[], None]] = []
        self._pool = torch.cuda.graph_pool_handle() if self.records else None
        self._stream: torch.cuda.Stream | None = None

    def record(self, run: RecordedRun, named: str) -> RecordedRun:
        """Return a function that does the same as ``run``: a graph's replay, or ``run`` itself.

        A recording that fails for another reason than memory is replaced by ``run``, with one warning per
        recorder: a request must not fail because a compiler is missing.

        Args:
            run: reads and writes tensors that outlive it.
            named: description for error messages.

        Raises:
            EngineError: the device's memory is exhausted.
        """
        if self.records:
            try:
                with _CAPTURE, self.on_device():
                    return self._record(run)
            except torch.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                raise out_of_memory(named, self.device) from error
            except Exception as error:  # noqa: BLE001 - drivers, compilers and libraries raise anything
                self._give_up(named, error)
        return self._unrecorded(run)

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the recorder's device is the current one.

        The current device belongs to the thread, and Triton launches kernels on it.
        """
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def _unrecorded(self, run: RecordedRun) -> RecordedRun:
        if self.device.type != "cuda":
            return run

        def guarded() -> None:
            with self.on_device():
                run()

        return guarded

    def _give_up(self, named: str, error: Exception) -> None:
        """Stop recording, and warn."""
        self.records = False
        _log.warning(
            "%s could not be recorded as a CUDA graph (%s: %s); %s runs without recordings, more slowly. "
            "Recording needs Triton, a C compiler and Python's headers.",
            named,
            type(error).__name__,
            str(error).strip().splitlines()[0] if str(error).strip() else "no message",
            self.device,
        )
        for simplify in self.simplify:
            simplify()

    def _record(self, run: RecordedRun) -> RecordedRun:
        # Warm-up and capture run on one side stream of this device. Without it, torch would capture on a
        # stream of the device that was current when the process first recorded. The stream is the same for
        # all recordings: memory that one of them frees can be used by the next on the same stream only.
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: another engine, or the caller.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            run()
        self.recorded += 1
        return graph.replay


class RecordingCache(Generic[Shape, Recording]):
    """The most recently used recordings by shape: a recording holds memory, and shapes are many.

    Args:
        most: number of recordings that are kept.
    """

    def __init__(self, most: int = MAX_RECORDINGS) -> None:
        self._most = most
        self._held: OrderedDict[Shape, Recording] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Shape]:
        return iter(self._held)

    def get(self, shape: Shape) -> Recording | None:
        """Return the recording of a shape; None if there is none."""
        if shape not in self._held:
            return None
        self._held.move_to_end(shape)
        return self._held[shape]

    def put(self, shape: Shape, recording: Recording) -> None:
        """Keep a recording; drop the one that was used least recently if there are too many."""
        self._held[shape] = recording
        if len(self._held) > self._most:
            self._held.popitem(last=False)


def out_of_memory(named: str, device: torch.device) -> EngineError:
    """Return (not raise) the error for exhausted memory of a CUDA device."""
    free, total = torch.cuda.mem_get_info(device)
    return EngineError(
        f"{named} did not fit {device}: {free / 2**30:.1f} of its {total / 2**30:.1f} GiB are free. "
        "Load with fewer slots, a smaller context, a half-precision dtype, or graphs='off'."
    )
