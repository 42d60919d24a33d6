"""Recording on a CUDA device, with torch's functions replaced: device, stream, lock, failures, memory."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest
import torch
from specclient_local.model.cuda_graphs.graph_recorder import GraphRecorder, RecordingCache

from specclient.errors import EngineError

SECOND = torch.device("cuda:1")


class FakeCuda:
    """Stands in for torch's recording functions, and notes how they are used."""

    def __init__(self, monkeypatch, error=None):
        self.current = torch.device("cuda:0")
        self.captures, self.streams = [], []
        self.running = self.most = 0
        self.error = error
        for name, function in {
            "device": self.device,
            "Stream": self.stream_of,
            "current_stream": self.stream_of,
            "stream": lambda stream: contextlib.nullcontext(),
            "graph_pool_handle": lambda: (0, 1),
            "CUDAGraph": lambda: self,
            "graph": self.graph,
        }.items():
            monkeypatch.setattr(torch.cuda, name, function)

    @contextlib.contextmanager
    def device(self, device):
        before, self.current = self.current, device
        yield
        self.current = before

    def stream_of(self, device):
        self.streams.append(device)
        return FakeStream(device)

    @contextlib.contextmanager
    def graph(self, graph, *, pool, stream, capture_error_mode):
        if self.error is not None:
            raise self.error
        self.running += 1
        self.most = max(self.most, self.running)
        self.captures.append((self.current, stream, capture_error_mode))
        time.sleep(0.01)
        yield
        self.running -= 1

    def replay(self):
        pass


class FakeStream:
    def __init__(self, device):
        self.device = device

    def wait_stream(self, other):
        assert other.device == self.device


def test_a_recording_uses_its_own_device_and_one_stream_of_it(monkeypatch):
    cuda, ran = FakeCuda(monkeypatch), []
    recorder = GraphRecorder(SECOND)
    for _ in range(2):
        recorder.record(lambda: ran.append(cuda.current), "a pass")()
    assert ran == [SECOND] * 6, "two warm-ups and a capture each"
    assert [(device, stream.device) for device, stream, _ in cuda.captures] == [(SECOND, SECOND)] * 2
    assert cuda.captures[0][1] is cuda.captures[1][1], "memory is reused on the same stream only"
    assert recorder.recorded == 2


def test_engines_record_one_after_the_other(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    recorders = [GraphRecorder(torch.device("cuda:0")) for _ in range(4)]
    threads = [threading.Thread(target=r.record, args=(lambda: None, "a pass")) for r in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cuda.captures) == 4
    assert cuda.most == 1


def test_a_failed_recording_runs_unrecorded_with_one_warning(monkeypatch, caplog):
    cuda, ran, simplified = FakeCuda(monkeypatch, RuntimeError("Python.h: no such file")), [], []
    recorder = GraphRecorder(SECOND)
    recorder.simplify.append(lambda: simplified.append(1))
    with caplog.at_level(logging.WARNING, "specclient"):
        runs = [recorder.record(lambda: ran.append(cuda.current), name) for name in ("a pass", "a round")]
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "a pass could not be recorded as a CUDA graph"
    ]
    assert "Python.h: no such file" in caplog.text
    assert (simplified, recorder.records, recorder.recorded) == ([1], False, 0)
    ran.clear()
    for run in runs:
        run()
    assert ran == [SECOND, SECOND], "unrecorded kernels are launched on the current device"


def test_exhausted_memory_is_still_an_error(monkeypatch):
    FakeCuda(monkeypatch, torch.OutOfMemoryError("Tried to allocate 2.00 GiB."))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 16 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with pytest.raises(EngineError, match="a round did not fit cuda:1"):
        GraphRecorder(SECOND).record(lambda: None, "a round")


def test_the_recordings_that_were_used_least_recently_are_dropped():
    held: RecordingCache[int, str] = RecordingCache(most=3)
    for shape in range(3):
        held.put(shape, str(shape))
    assert held.get(0) == "0"
    held.put(3, "3")
    assert list(held) == [2, 0, 3]
    assert held.get(1) is None
    assert len(held) == 3
