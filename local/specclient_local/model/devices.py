"""Device names: the available devices, and the resolution of a name to a torch device."""

from __future__ import annotations

import torch

from specclient.errors import ConfigurationError


def available_devices() -> tuple[str, ...]:
    """Return the names of this machine's devices."""
    cuda = tuple(f"cuda:{i}" for i in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    return ("cpu", *cuda, *(("mps",) if torch.backends.mps.is_available() else ()))


def resolve_device(name: str) -> torch.device:
    """Return the device with this name. ``auto`` is the first CUDA device, else the CPU, never MPS.

    Raises:
        ConfigurationError: the device is not available; lists the available ones.
    """
    here = available_devices()
    full = {"auto": "cuda:0" if "cuda:0" in here else "cpu", "cuda": "cuda:0"}.get(name, name)
    if full not in here:
        raise ConfigurationError(
            f"device is {name!r}, which is not available; available are {', '.join(here)}. "
            "A CUDA or MPS device needs a torch built for it."
        )
    return torch.device(full)


def parallel_devices(name: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` devices from one on; for a CPU, the same one for each.

    Raises:
        ConfigurationError: there are not as many.
    """
    first = resolve_device(name)
    if first.type == "cpu":
        return ("cpu",) * count
    wanted = tuple(f"{first.type}:{(first.index or 0) + i}" for i in range(count))
    here = available_devices()
    if not set(wanted) <= set(here):
        raise ConfigurationError(
            f"tensor_parallel is {count}, which needs {', '.join(wanted)}; available are {', '.join(here)}."
        )
    return wanted
