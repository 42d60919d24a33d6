"""``specclient local train draft`` on tiny random models: training, figures and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from specclient_cli.local.train.data import load_texts

from specclient.errors import ConfigurationError

QUICK = (
    *(
        "--steps",
        "4",
        "--prompts",
        "6",
        "--heldout",
        "2",
        "--prompt-tokens",
        "8",
        "--new",
        "12",
        "--every",
        "2",
    ),
    *("--batch", "2", "--slots", "2", "--precision", "float32", "--lr", "0.01", "--threads", "1"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "texts"
    (found / "deep").mkdir(parents=True)
    for i in range(6):
        (found / "deep" / f"m{i}.py").write_text(f"def f{i}(x):\n    return x + {i}\n" * 6)
    (found / "picture.png").write_bytes(b"\xff\xfe")
    (found / "latin.py").write_bytes(b"# caf\xe9\n")
    return found


def test_a_draft_is_trained_and_used(run, local, folder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, err = run("local", "train", "draft", "--data", str(folder), "--out", str(out), *QUICK)
    assert code == 0, err
    assert "held out, before:" in text
    assert "held out, after:" in text
    lines = err.splitlines()
    assert lines[0].startswith("sampling answers 6/6")
    assert "training 4/4 · loss " in lines[-1]
    assert "of sampled and" in lines[-1]
    again = run("local", "train", "draft", "--data", str(folder), "--out", str(out), *QUICK, "--json")
    result = json.loads(again[1])
    assert result["bytes"] > 0
    assert set(result["before"]) == set(result["after"]) == {"drawn", "greedy", "tokens_per_round"}
    code, _, err = run("local", "generate", "def f(x):", "--draft", str(out), "--max-tokens", "8")
    assert (code, err.endswith(" · draft\n")) == (0, True)


def test_a_terminal_shows_a_progress_bar(run, local, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    arguments = ("local", "train", "draft", "--data", str(folder), "--out", str(tmp_path / "out"), *QUICK)
    code, _, err = run(*arguments)
    assert code == 0
    assert "\x1b[" in err
    assert "training" in err


def test_texts_are_read_from_files_folders_and_prompt_lists(folder, tmp_path: Path) -> None:
    learnt, held, whole = load_texts(str(folder))
    assert (len(learnt) + len(held), whole) == (6, False)
    assert held
    assert (learnt, held, whole) == load_texts(str(folder)), "the held-out texts must be the same every time"
    rows = tmp_path / "prompts.jsonl"
    rows.write_text("".join(f'{{"prompt": "number {i}"}}\n' for i in range(40)))
    learnt, held, whole = load_texts(str(rows))
    assert whole
    assert 0 < len(held) < 12
    assert sorted(learnt + held) == sorted(f"number {i}" for i in range(40))
    (folder / "more.jsonl").write_text(rows.read_text())
    assert load_texts(str(folder))[2], "prompt lists take precedence over texts"


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ({}, "has 0 texts"),
        ({"one.py": "x = 1"}, "has 1 texts"),
        ({"a.jsonl": '{"prompt": "one"}\n{"text": "two"}\n'}, "line 2 has no prompt"),
    ],
)
def test_too_little_data_is_refused(tmp_path: Path, made, named) -> None:
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_texts(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "named"), [("./nowhere", "which does not exist"), ("nobody/nothing", "data set could not be")]
)
def test_missing_data_is_named(run, local, tmp_path, data, named) -> None:
    code, _, err = run("local", "train", "draft", "--data", data, "--out", str(tmp_path / "out"))
    assert code == 3
    assert named in err
    assert not (tmp_path / "out").exists()


def test_a_target_without_a_draft_is_an_error(run, pair, folder, tmp_path) -> None:
    code, _, err = run(
        "local", "train", "draft", "-m", str(pair[0]), "--data", str(folder), "--out", str(tmp_path / "out")
    )
    assert code == 3
    assert "draft is None" in err
