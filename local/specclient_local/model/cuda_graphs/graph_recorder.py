"""Turn a function of fixed buffers into one that is recorded once, where that is possible, and replayed."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable

import torch

from specclient.errors import EngineError

RecordedRun = Callable[[], None]

_WARM_UPS = 2
"""Runs before a recording: the first compiles and lets libraries choose, the second has all chosen."""


class GraphRecorder:
    """Records runs as CUDA graphs that share one pool of memory; on other devices they stay as they are.

    What is recorded must read its inputs from, and leave its results in, tensors that outlive it, and must
    do the same when run again: it runs as it is before it is recorded. Recordings of one pool may not
    run side by side; an engine's do not, since one thread owns the device.

    Args:
        device: where the runs happen.
        records: whether they are recorded on CUDA; without, they are slower, and an error shows where it is.
    """

    def __init__(self, device: torch.device, *, records: bool = True) -> None:
        self.device = device
        self.records = records and device.type == "cuda"
        self.recorded = 0
        self._pool = torch.cuda.graph_pool_handle() if self.records else None

    @property
    def compiles(self) -> bool:
        """Whether ``torch.compile`` can do its part: with Triton, and a C compiler for its launchers.

        An older torch has no compiled code of a model's own: two models' would make symbols of their widths.
        """
        if not self.records or "isolate_recompiles" not in inspect.signature(torch.compile).parameters:
            return False
        from torch.utils._triton import has_triton  # noqa: PLC0415 - slow to import, and only asked on CUDA

        return has_triton() and any(map(shutil.which, ("cc", "gcc", "clang")))

    def record(self, run: RecordedRun, named: str) -> RecordedRun:
        """Return what does the same as ``run``.

        Args:
            run: reads and writes tensors that outlive it.
            named: what it is, for errors.

        Raises:
            EngineError: it does not fit the device's memory.
        """
        if not self.records:
            return run
        try:
            return self._record(run)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise out_of_memory(named, self.device) from error

    def _record(self, run: RecordedRun) -> RecordedRun:
        # Beside the current stream, as a recording demands: what it warms up is then what is recorded.
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: another engine's, or the caller's own.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        self.recorded += 1
        return graph.replay


def out_of_memory(named: str, device: torch.device) -> EngineError:
    """Return the error of what did not fit a CUDA device."""
    free, total = torch.cuda.mem_get_info(device)
    return EngineError(
        f"{named} did not fit {device}: {free / 2**30:.1f} of its {total / 2**30:.1f} GiB are free. "
        "Load with fewer slots, a smaller context, a half-precision dtype, or graphs='off'."
    )
