"""Sums over the processes of a tensor-parallel model."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from specclient.errors import ConfigurationError

_TIMEOUT = timedelta(seconds=120)
"""Time after which a process stops waiting for one that has failed."""


def check_distributed(device: torch.device) -> None:
    """Check that torch can add up tensors of several processes on this kind of device.

    Raises:
        ConfigurationError: it cannot.
    """
    usable = dist.is_available() and (
        dist.is_nccl_available()
        if device.type == "cuda"
        else device.type == "cpu" and dist.is_gloo_available()
    )
    if not usable:
        raise ConfigurationError(
            "tensor_parallel needs torch.distributed, with NCCL on CUDA devices or gloo on CPUs, which this "
            f"torch lacks for {device}; leave it out."
        )


class DeviceGroup:
    """The processes of one model: NCCL on CUDA devices, gloo on CPUs.

    It is independent of torch's default process group, so an application may have one of its own.

    Args:
        meeting: path of a file by which the processes find each other; the same for all, and new.
        rank: number of this process.
        size: number of processes.
        device: the device of this process.
    """

    def __init__(self, meeting: Path, rank: int, size: int, device: torch.device) -> None:
        library: Any = dist  # its types leave out the classes that need no default group
        store = library.FileStore(str(meeting), size)
        self._group: Any
        if device.type == "cuda":
            settings = library.ProcessGroupNCCL.Options()
            settings._timeout = _TIMEOUT
            self._group = library.ProcessGroupNCCL(store, rank, size, settings)
        else:
            settings = library.ProcessGroupGloo._Options()
            settings._devices = [library.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
            settings._timeout = _TIMEOUT
            self._group = library.ProcessGroupGloo(store, rank, size, settings)

    def add_up(self, x: Tensor) -> Tensor:
        """Return the sum of all processes' tensors, in place of ``x``."""
        self._group.allreduce([x]).wait()
        return x
