"""Recording of functions over fixed buffers as CUDA graphs."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable

import torch

from specclient.errors import EngineError

RecordedRun = Callable[[], None]

_WARM_UPS = 2
"""Runs before a recording: the first compiles and lets libraries choose kernels, the second uses them."""


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
        recorded: number of graphs recorded.
    """

    def __init__(self, device: torch.device, *, records: bool = True) -> None:
        self.device = device
        self.records = records and device.type == "cuda"
        self.recorded = 0
        self._pool = torch.cuda.graph_pool_handle() if self.records else None

    @property
    def compiles(self) -> bool:
        """Whether to use ``torch.compile``: requires Triton, and a C compiler for its launchers.

        Older versions of torch without ``isolate_recompiles`` are not used: the compiled code of two models
        would be shared, and their widths would become symbolic.
        """
        if not self.records or "isolate_recompiles" not in inspect.signature(torch.compile).parameters:
            return False
        from torch.utils._triton import has_triton  # noqa: PLC0415 - slow to import, only needed on CUDA

        return has_triton() and any(map(shutil.which, ("cc", "gcc", "clang")))

    def record(self, run: RecordedRun, named: str) -> RecordedRun:
        """Return a function that does the same as ``run``: a graph's replay, or ``run`` itself.

        Args:
            run: reads and writes tensors that outlive it.
            named: description for error messages.

        Raises:
            EngineError: the device's memory is exhausted.
        """
        if not self.records:
            return run
        try:
            return self._record(run)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise out_of_memory(named, self.device) from error

    def _record(self, run: RecordedRun) -> RecordedRun:
        # CUDA graphs require warm-up runs on a side stream.
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: another engine, or the caller.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        self.recorded += 1
        return graph.replay


def out_of_memory(named: str, device: torch.device) -> EngineError:
    """Return (not raise) the error for exhausted memory of a CUDA device."""
    free, total = torch.cuda.mem_get_info(device)
    return EngineError(
        f"{named} did not fit {device}: {free / 2**30:.1f} of its {total / 2**30:.1f} GiB are free. "
        "Load with fewer slots, a smaller context, a half-precision dtype, or graphs='off'."
    )
