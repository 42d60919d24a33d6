"""The table of accepted lengths by task, of a few tokens."""

from __future__ import annotations

import gzip
import json

import pytest
from paths import BENCHMARKS


@pytest.fixture
def acceptance(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import acceptance as program

    return program


@pytest.fixture
def data(tmp_path):
    prompt = {"prompt": "def add(a, b):\n    "}
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(prompt).encode()))
    questions = [{"category": name, "turns": [f"Question about {name}?", "And?"]} for name in ("math", "qa")]
    (tmp_path / "spec_bench_question.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return tmp_path


def test_prompts_are_those_of_the_files(acceptance, data):
    found = acceptance.tasks(data)
    assert list(found) == ["HumanEval", "math", "qa"]
    assert found["qa"] == ["Question about qa?"]


def test_a_folder_without_the_files_is_refused(acceptance, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"HumanEval\.jsonl\.gz"):
        acceptance.tasks(tmp_path)


def test_every_task_and_method_has_a_length_between_one_and_the_longest(acceptance, data):
    found = acceptance.table(data, prompts=1, new=12, length=3, threads=1)
    assert found.keys() == acceptance.tasks(data).keys()
    for lengths in found.values():
        assert lengths.keys() == acceptance.METHODS.keys()
        assert all(1.0 <= lengths[name] <= 4.0 for name in ("draft", "EAGLE-3", "Medusa"))
