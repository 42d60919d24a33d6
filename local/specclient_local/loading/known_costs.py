"""Costs of rounds that an earlier load of the same models has measured in this process.

Measuring takes four fifths of the time in which a small pair is loaded. The costs depend on the models'
shapes, the options and the kernels, so a process that loads a pair again need not repeat it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.loading.options import EngineOptions
from specclient_local.model.gguf.header import gguf_files
from specclient_local.model.model_runner import ModelRunner
from specclient_local.request.params import Method

_KEPT = 32
"""Number of loads whose costs are kept, the newest ones."""

_known: dict[Hashable, Mapping[Method, RoundCosts]] = {}


def load_key(
    target: ModelRunner, checkpoints: Sequence[Path], options: EngineOptions, threads: int
) -> Hashable:
    """Return what the costs of a load depend on.

    Args:
        target: the loaded target.
        checkpoints: folders and GGUF files of the target, the drafts, the heads and the adapters. A file that
            was replaced since an earlier load makes another key.
        options: the options of the load.
        threads: the number of threads that compute.
    """
    passes = getattr(getattr(target, "decoder", None), "passes", None)
    stamps = tuple((path.absolute(), _files(path)) for path in checkpoints)
    return stamps, options, target.context, threads, type(target), type(passes)


def known_costs(key: Hashable) -> Mapping[Method, RoundCosts] | None:
    """Return the costs by method that a load with this key has measured; None for the first one."""
    return _known.get(key)


def keep_costs(key: Hashable, costs: Mapping[Method, RoundCosts]) -> None:
    """Keep the costs by method of a load with this key."""
    _known[key] = costs
    for old in list(_known)[:-_KEPT]:
        _known.pop(old, None)  # another thread may have removed it


def _files(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the names of a checkpoint's files, their sizes in bytes, and their times in nanoseconds.

    All of them count: a file may be replaced by one that was written earlier.
    """
    files = sorted(path.iterdir()) if path.is_dir() else gguf_files(path)
    found = ((file.name, file.stat()) for file in files if file.exists())
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
