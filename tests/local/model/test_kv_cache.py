"""KV caches: memory that is written for timing, and returned."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.kv_cache import KVCache
from tiny_models import write_checkpoint


@pytest.fixture(params=[16, 4096], ids=["small", "mapped"])
def cache(request, tmp_path):
    with torch.inference_mode():
        return KVCache(read_config(write_checkpoint(tmp_path / "t")), 2, request.param, torch.float32)


def resident_kib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory that Linux counts")
def test_written_positions_take_memory_until_they_are_released(cache):
    size = cache.rows.numel() * cache.rows.itemsize // 1024
    before = resident_kib()
    cache.write_zeros(2, cache.capacity)
    written = resident_kib() - before
    cache.release()
    if size > 1024:
        assert written > 0.9 * size
        assert resident_kib() - before < 0.1 * size


def test_a_released_cache_is_zero(cache):
    with torch.inference_mode():
        cache.rows.fill_(3.0)
    cache.release()
    assert not cache.rows.any()
