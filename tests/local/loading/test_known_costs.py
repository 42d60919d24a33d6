"""Costs of rounds are measured by the first load of a pair in a process, and known to later ones."""

from __future__ import annotations

import os

import pytest
from specclient_local.loading import drafter_set, known_costs
from specclient_local.loading.calibration import Calibration
from tiny_models import load


@pytest.fixture
def measured(monkeypatch):
    """Return the number of slots of each calibration from now on, in a process that has loaded nothing."""
    found = []

    class Counted(Calibration):
        def __init__(self, target, slots):
            found.append(slots)
            super().__init__(target, slots)

    monkeypatch.setattr(drafter_set, "Calibration", Counted)
    monkeypatch.setattr(known_costs, "_known", {})
    return found


def costs(*models, **options):
    with load(*models, **options) as engine:
        return engine.costs


def test_the_same_pair_is_measured_once(checkpoint, measured):
    target, draft = checkpoint(), checkpoint(num_hidden_layers=1)
    first = costs(target, draft)
    assert costs(target, draft) == first
    assert {"draft", "union", "ngram"} <= first.keys()
    assert measured == [2]


def test_other_models_options_and_kernels_are_measured(checkpoint, measured, monkeypatch):
    target, draft = checkpoint(), checkpoint(num_hidden_layers=1)
    costs(target, draft)
    costs(target, draft, slots=3)
    costs(target, checkpoint(num_hidden_layers=1, seed=4))
    costs(target)
    monkeypatch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)
    costs(target, draft)
    assert measured == [2, 3, 2, 2, 2]


def test_a_checkpoint_that_was_written_again_is_measured(checkpoint, measured, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    for file in checkpoint().iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    costs(folder)
    os.utime(folder / "config.json")
    costs(folder)
    assert measured == [2, 2]
    os.utime(folder / "tokenizer.json", (1, 1))  # an older file than the newest
    costs(folder)
    assert measured == [2, 2, 2]


def test_every_file_of_a_model_in_several_is_stamped(checkpoint, measured, tmp_path):
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from gguf_files import write_gguf

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in checkpoint().iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    path = write_gguf(folder, tmp_path / "model.gguf", split=7)
    first, *others = sorted(tmp_path.glob("*.gguf"))
    assert path == first
    costs(path)
    costs(path)
    assert measured == [2]
    for number, file in enumerate(others, 2):
        os.utime(file)
        costs(path)
        assert measured == [2] * number, file


def test_only_the_newest_loads_are_kept(measured):
    for number in range(40):
        known_costs.keep_costs(number, {})
    assert known_costs.known_costs(39) == {}
    assert known_costs.known_costs(0) is None
    assert len(known_costs._known) == 32
