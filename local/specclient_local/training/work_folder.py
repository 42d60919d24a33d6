"""The work folder of a training run: a record of its settings, and files of tensors, each written whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from specclient.errors import ConfigurationError, EngineError

_RECORD = "recipe.json"


def claim_work_folder(
    work: Path, settings: Mapping[str, Any], texts: Iterable[str], heldout: Iterable[str]
) -> None:
    """Check that a work folder is new or belongs to this run, and record the run's settings in it.

    A folder of another run would make this run continue with that run's answers and checkpoints.

    Args:
        work: the folder; created if it does not exist.
        settings: all settings that determine the result, as JSON values.
        texts: the training texts.
        heldout: the texts for measurements.

    Raises:
        ConfigurationError: the folder belongs to another run.
    """
    digest = hashlib.sha256()
    for part in (*texts, "\0", *heldout):
        digest.update(hashlib.sha256(part.encode()).digest())
    text, path = json.dumps({**settings, "data": digest.hexdigest()}, indent=1), work / _RECORD
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != json.loads(text):
        raise ConfigurationError(
            f"{work} holds a run with other settings or texts; give the same ones, name another folder, or "
            "delete it."
        )
    work.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically.

    Args:
        path: the file.
        tensors: contiguous tensors on the CPU, by name.

    Raises:
        EngineError: the file cannot be written.
    """
    partial = path.with_suffix(".partial")
    try:
        save_file(dict(tensors), partial)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise EngineError(
            f"{path} could not be written ({error}); free disk space or name another work folder, and repeat "
            "the command. The answers saved before are kept."
        ) from error
