"""A target in two processes on the CPU: the answers of one process, and clear errors where that cannot be."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.engine.engine import Engine
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.loading.options import EngineOptions
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.devices import parallel_devices
from specclient_local.model.tensor_parallel import parallel_runner
from specclient_local.model.tensor_parallel.parallel_runner import ParallelRunner, ShardSettings
from specclient_local.model.weight_shards import WeightShard
from tiny_models import run, sequence, write_checkpoint

from specclient.errors import ConfigurationError, EngineError

PLACED = ModelPlacement(device="cpu", tensor_parallel=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("parallel") / "target", spread=0.15)


@pytest.fixture(scope="module")
def parallel(folder):
    runner = load_model(folder, PLACED, slots=2, context=96)
    yield runner
    runner.stop()


def answers(target, folder):
    """Return greedy and sampled answers by several methods, two requests after one another in each slot."""
    draft = DecoderRunner.load(folder, dtype="float32", slots=2, context=96)
    speculator = Speculator(target, {"draft": DraftModel(draft, target.config.vocab_size)})
    found = []
    for settings in (
        {"method": "plain"},
        {"method": "draft", "draft_length": 4},
        {"method": "draft", "draft_tree": (2, 2)},
        {"method": "ngram", "temperature": 0.8, "seed": 3},
    ):
        request = sequence([7, 8, 9, 10, 7, 8], max_tokens=24, **settings)
        found.append(run(speculator, request))
        speculator.end(request)
    return found


def test_two_processes_give_the_tokens_of_one(parallel, folder):
    assert isinstance(parallel, ParallelRunner)
    one = load_model(folder, dataclasses.replace(PLACED, tensor_parallel=1), slots=2, context=96)
    assert answers(parallel, folder) == answers(one, folder)
    parallel.truncate(0, 0)
    one.truncate(0, 0)
    torch.testing.assert_close(parallel.read(0, [1, 2, 3]), one.read(0, [1, 2, 3]), atol=1e-4, rtol=1e-4)


def test_an_engine_divides_its_target_and_ends_its_processes(folder):
    texts = []
    for parts in (1, 2):
        with Engine.load(folder, device="cpu", context=64, slots=1, tensor_parallel=parts) as engine:
            texts.append(engine.generate("abcabc", max_tokens=12, method="ngram").text)
            target = engine._speculator.target
    assert texts[0] == texts[1]
    assert [process.returncode for process in target._others._processes] == [0]


def test_a_part_that_cannot_be_loaded_says_why(folder, tmp_path):
    first, second = (
        ShardSettings(folder, "float32", None, device, 1, 32, True, WeightShard(rank, 2), tmp_path / "m", 1)
        for rank, device in enumerate(("cpu", "nowhere"))
    )
    with pytest.raises(ConfigurationError, match=r"part 1 .* was not loaded: RuntimeError: .*nowhere"):
        ParallelRunner.load_parts([first, second])


def test_a_model_without_equal_parts_starts_no_process(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_runner, "ShardProcesses", None)
    shape = json.loads((folder / "config.json").read_text())
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "config.json").write_text(json.dumps(shape | {"num_key_value_heads": 1}))
    with pytest.raises(ConfigurationError, match="does not divide the model's 1 key heads"):
        load_model(broken, PLACED, slots=1, context=32)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"graphs": "on"}, "graphs is 'on'"),
        ({"runner": "hf"}, "runner is 'hf'"),
        ({"heads": "bundled:eagle3"}, "heads are set"),
        ({"layer_skip": 2}, "layer_skip is set"),
        ({"device": "mps"}, "device is 'mps'"),
    ],
)
def test_what_a_divided_target_cannot_do_is_refused_by_name(settings, named):
    with pytest.raises(ConfigurationError, match=f"tensor_parallel is 2; {named}"):
        EngineOptions.read({"tensor_parallel": 2, **settings})
    EngineOptions.read({"tensor_parallel": 1, **settings})


def test_too_few_devices_are_refused(monkeypatch):
    monkeypatch.setattr(
        "specclient_local.model.devices.available_devices", lambda: ("cpu", "cuda:0", "cuda:1")
    )
    assert parallel_devices("cuda", 2) == ("cuda:0", "cuda:1")
    assert parallel_devices("cpu", 3) == ("cpu",) * 3
    with pytest.raises(ConfigurationError, match="needs cuda:1, cuda:2; available are cpu, cuda:0, cuda:1"):
        parallel_devices("cuda:1", 2)


def test_an_ended_process_is_an_error_and_not_a_wait(parallel):
    """Ends the process of the model that other tests use, and is therefore the last one."""
    (process,) = parallel._others._processes
    process.kill()
    process.wait()
    with pytest.raises((EngineError, RuntimeError)):
        parallel.read(1, [3])
