"""Checkpoints of a draft in training: Hugging Face folders, written atomically.

A checkpoint can be loaded as a model. Its additional file ``training.pt`` has the state of the optimizers,
which only a resumed run reads.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from specclient.errors import CheckpointError, EngineError
from specclient_local.model.hf.attention import quiet_transformers

_WRITTEN = ("config.json", "generation_config.json", "training.pt")
_STATE = "training.pt"
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, SafetensorError, RuntimeError, ValueError)
_SPARE = 1.05
"""Required disk space relative to the bytes of the tensors; files have headers."""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class DraftCheckpoints:
    """The checkpoints of one run.

    Args:
        work: the run's work folder.
        origin: checkpoint of the initial draft; its tokenizer is copied.
        free: returns the free bytes on a folder's disk.
    """

    def __init__(self, work: Path, origin: Path, free: Callable[[Path], int] = _free) -> None:
        self._work, self._origin, self._free = work, origin, free

    def folder(self, done: int) -> Path:
        """Return the folder of the checkpoint after ``done`` steps."""
        return self._work / f"checkpoint-{done:06d}"

    def last(self) -> int | None:
        """Return the number of steps of the last checkpoint; None if there is none."""
        done = [int(path.name.rpartition("-")[2]) for path in self._work.glob("checkpoint-??????")]
        return max(done, default=None)

    def save(self, done: int, draft: PreTrainedModel, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, then delete the one before it.

        Args:
            done: finished steps.
            draft: the draft.
            state: the other values that a resumed run needs, such as the optimizers' state.

        Raises:
            EngineError: the disk is full, or the checkpoint cannot be written.
        """
        self._check_space(draft, state)
        before, folder = self.last(), self.folder(done)
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            write(draft, self._origin, partial)
            torch.save(dict(state), partial / _STATE)
            partial.replace(folder)
        except (
            OSError,
            SafetensorError,
            RuntimeError,
        ) as error:  # torch raises RuntimeError if it cannot write
            shutil.rmtree(partial, ignore_errors=True)
            raise self._error(f"could not be written ({error})") from error
        if before is not None and before != done:
            shutil.rmtree(self.folder(before))

    def load(self, done: int, draft: PreTrainedModel) -> dict[str, Any]:
        """Load a checkpoint's weights into the draft; return the state saved with them.

        Raises:
            CheckpointError: a file cannot be read.
        """
        folder = self.folder(done)
        try:
            with quiet_transformers():
                saved = type(draft).from_pretrained(folder, dtype=torch.float32, local_files_only=True)
            draft.load_state_dict(saved.state_dict())
            state: dict[str, Any] = torch.load(folder / _STATE, weights_only=True, map_location=draft.device)
        except _UNREADABLE as error:
            raise CheckpointError(
                f"{folder} cannot be read ({error}); delete it to start again with the same answers."
            ) from error
        return state

    def _check_space(self, draft: PreTrainedModel, state: Mapping[str, Any]) -> None:
        """Raise an error if the disk has too little space for a checkpoint."""
        tensors = [*draft.parameters(), *_tensors(state)]
        needed = int(sum(tensor.numel() * tensor.element_size() for tensor in tensors) * _SPARE)
        available = self._free(self._work)
        if available < needed:
            raise self._error(f"needs {needed / 1e6:.1f} MB, and {available / 1e6:.1f} MB are free")

    def _error(self, problem: str) -> EngineError:
        last = self.last()
        previous = "there is no earlier one" if last is None else f"the one of step {last} is complete"
        return EngineError(
            f"a checkpoint in {self._work} {problem}; {previous}. Free disk space and repeat the command."
        )


def publish(draft: PreTrainedModel, origin: Path, out: Path) -> None:
    """Write a trained draft in the data type of its origin; each file is written atomically.

    Args:
        draft: the draft; converted in place.
        origin: checkpoint of the initial draft.
        out: folder for the files.

    Raises:
        EngineError: a file cannot be written.
    """
    config = json.loads((origin / "config.json").read_text(encoding="utf-8"))
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    partial = out / ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        write(draft.to(getattr(torch, name, torch.float32)), origin, partial)  # type: ignore[arg-type]
        for path in sorted(partial.iterdir()):
            path.replace(out / path.name)
        partial.rmdir()
    except (OSError, SafetensorError) as error:
        raise EngineError(
            f"the draft could not be written to {out} ({error}); its last checkpoint is complete. Free disk "
            "space and repeat the command."
        ) from error


def write(draft: PreTrainedModel, origin: Path, folder: Path) -> None:
    """Write a checkpoint folder: the draft's weights and configuration, and the other files of its origin."""
    folder.mkdir(parents=True)
    with quiet_transformers():
        draft.save_pretrained(folder)
    for path in origin.iterdir():
        needed = path.suffix in (".json", ".jinja", ".model") and not path.name.endswith(".index.json")
        if needed and path.name not in _WRITTEN:
            shutil.copyfile(path, folder / path.name)


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]
