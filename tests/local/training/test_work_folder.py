"""Tests of work folders: another run is refused, and a file that cannot be written leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from specclient_local.training.work_folder import claim_work_folder, write_tensors

from specclient.errors import ConfigurationError, EngineError

SETTINGS = {"steps": 3, "temperatures": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("settings", "texts", "heldout"),
    [({**SETTINGS, "steps": 4}, ["a", "b"], ["c"]), (SETTINGS, ["a"], ["c"]), (SETTINGS, ["a"], ["b", "c"])],
)
def test_a_folder_is_claimed_by_one_run_only(
    tmp_path: Path, settings: dict[str, object], texts: list[str], heldout: list[str]
) -> None:
    work = tmp_path / "work"
    for _ in range(2):
        claim_work_folder(work, SETTINGS, ["a", "b"], ["c"])
    with pytest.raises(ConfigurationError, match="work holds a run with other settings or texts"):
        claim_work_folder(work, settings, texts, heldout)


def test_tensors_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "piece.safetensors"
    write_tensors(path, {"ids": torch.arange(3)})
    assert load_file(path)["ids"].tolist() == [0, 1, 2]
    with pytest.raises(EngineError, match="could not be written"):
        write_tensors(tmp_path / "missing" / "piece.safetensors", {"ids": torch.arange(3)})
    assert [each.name for each in tmp_path.iterdir()] == ["piece.safetensors"]
