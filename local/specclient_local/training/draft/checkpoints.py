"""Turn a draft in training into Hugging Face folders that appear whole or not at all, and back.

A checkpoint is a folder that any loader takes, with ``training.pt`` beside its weights: what the optimizer
remembers, which only a run that goes on reads.
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

_OWN = ("config.json", "generation_config.json", "training.pt")
_STATE = "training.pt"
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, SafetensorError, RuntimeError, ValueError)
_SPARE = 1.05
"""Room asked for beside the bytes of the tensors: files have headers."""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class DraftCheckpoints:
    """The checkpoints of one run.

    Args:
        work: folder that they are in.
        origin: checkpoint whose tokenizer goes with them.
        free: tells how many bytes a folder has room for.
    """

    def __init__(self, work: Path, origin: Path, free: Callable[[Path], int] = _free) -> None:
        self._work, self._origin, self._free = work, origin, free

    def folder(self, done: int) -> Path:
        """Return where the checkpoint after so many steps is."""
        return self._work / f"checkpoint-{done:06d}"

    def last(self) -> int | None:
        """Return how many steps the last whole checkpoint had done; None where there is none."""
        done = [int(path.name.rpartition("-")[2]) for path in self._work.glob("checkpoint-??????")]
        return max(done, default=None)

    def save(self, done: int, draft: PreTrainedModel, state: Mapping[str, Any]) -> None:
        """Write a checkpoint beside the one before it, and only then delete that.

        Raises:
            EngineError: there is no space for it.
        """
        self._room(draft, state)
        before, folder = self.last(), self.folder(done)
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            write(draft, self._origin, partial)
            torch.save(dict(state), partial / _STATE)
            partial.replace(folder)
        except (OSError, SafetensorError, RuntimeError) as error:  # torch's own for a file it cannot write
            shutil.rmtree(partial, ignore_errors=True)
            raise self._full(f"could not be written ({error})") from error
        if before is not None and before != done:
            shutil.rmtree(self.folder(before))

    def load(self, done: int, draft: PreTrainedModel) -> dict[str, Any]:
        """Put a checkpoint's weights into the draft; return the state saved with them.

        Raises:
            CheckpointError: files that cannot be read.
        """
        folder = self.folder(done)
        try:
            with quiet_transformers():
                saved = type(draft).from_pretrained(folder, dtype=torch.float32, local_files_only=True)
            draft.load_state_dict(saved.state_dict())
            state: dict[str, Any] = torch.load(folder / _STATE, weights_only=True, map_location=draft.device)
        except _UNREADABLE as error:
            raise CheckpointError(
                f"{folder} cannot be read ({error}); delete it to begin again with the same answers."
            ) from error
        return state

    def _room(self, draft: PreTrainedModel, state: Mapping[str, Any]) -> None:
        tensors = [*draft.parameters(), *_tensors(state)]
        needed = int(sum(tensor.numel() * tensor.element_size() for tensor in tensors) * _SPARE)
        there = self._free(self._work)
        if there < needed:
            raise self._full(f"needs {needed / 1e6:.1f} MB, and {there / 1e6:.1f} MB are free")

    def _full(self, what: str) -> EngineError:
        last = self.last()
        kept = "none was written before" if last is None else f"that of step {last} is whole"
        return EngineError(
            f"a checkpoint in {self._work} {what}; {kept}. Make room and give the same command again."
        )


def publish(draft: PreTrainedModel, origin: Path, out: Path) -> None:
    """Write a trained draft in the type that its origin was saved in, each file whole or not at all.

    Raises:
        EngineError: it cannot be written.
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
            f"the draft could not be written to {out} ({error}); make room and give the same command again: "
            "its last checkpoint is whole."
        ) from error


def write(draft: PreTrainedModel, origin: Path, folder: Path) -> None:
    """Write a checkpoint folder: weights and configuration of the draft, all else of its origin."""
    folder.mkdir(parents=True)
    with quiet_transformers():
        draft.save_pretrained(folder)
    for path in origin.iterdir():
        other = path.suffix in (".json", ".jinja", ".model") and not path.name.endswith(".index.json")
        if other and path.name not in _OWN:
            shutil.copyfile(path, folder / path.name)


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for each in inner for tensor in _tensors(each)]
