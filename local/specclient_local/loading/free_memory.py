"""The free memory of a device, within the limits of the system and of a control group."""

from __future__ import annotations

from pathlib import Path

import torch

from specclient_local.model.kv_cache import memory

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int | None:
    """Return a device's free bytes now, or None where they are unknown.

    For a CPU: the smaller of Linux's ``MemAvailable`` and the rest of the control group's limit (cgroup v2);
    where neither is known, all memory of the machine.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    limits = [_system_available(Path("/proc/meminfo")), _cgroup_available(_CGROUP)]
    known = [size for size in limits if size is not None]
    return min(known) if known else memory(device)


def _system_available(meminfo: Path) -> int | None:
    """Return ``MemAvailable`` of Linux's ``/proc/meminfo`` in bytes."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return available[0] if available else None


def _cgroup_available(folder: Path) -> int | None:
    """Return the rest of a control group's limit in bytes; the page cache counts as free."""
    try:
        limit, used = ((folder / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        files = [
            line for line in (folder / "memory.stat").read_text().splitlines() if line.startswith("file ")
        ]
        return None if limit == "max" else max(0, int(limit) - int(used) + int(files[0].split()[1]))
    except (OSError, ValueError, IndexError):
        return None
