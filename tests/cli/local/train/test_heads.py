"""``specclient local train heads`` on a tiny random model: training, JSON, drafting, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import write_checkpoint

QUICK = (
    *("--steps", "6", "--prompts", "24", "--heldout", "8", "--prompt-tokens", "8", "--new", "16"),
    *(
        "--batch",
        "4",
        "--depth",
        "2",
        "--ff",
        "32",
        "--draft-vocab",
        "60",
        "--threads",
        "1",
        "--device",
        "cpu",
    ),
)


@pytest.fixture(autouse=True)
def _configured(local) -> None:
    """Configure ``demo`` as the tiny pair for all tests."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("target"), spread=0.1, num_hidden_layers=5)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for i in range(4):
        (folder / "deep" / f"{i}.py").write_text(f"def f{i}(x):\n    return x + {i}\n" * 8)
    (folder / "picture.bin").write_bytes(b"\xff\xfe")
    return folder


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3", "peagle"])
def test_heads_are_trained_saved_and_used_for_drafting(run, target, texts, tmp_path, kind: str) -> None:
    out = tmp_path / "heads"
    taps = ("--taps", "1,2,4") if kind in ("eagle3", "peagle") else ()
    arguments = (
        "local",
        "train",
        "heads",
        "-m",
        str(target),
        "--kind",
        kind,
        "--out",
        str(out),
        *taps,
        *QUICK,
    )
    code, text, err = run(*arguments, "--data", str(texts))
    assert code == 0, err
    assert f"{kind} heads of " in text
    assert "tokens per round" in text
    lines = err.splitlines()
    assert lines[0].startswith("collecting answers 24/24")
    assert lines[-1].startswith("training 6/6 · loss ")
    assert "first token accepted" in lines[-1]
    code, again, _ = run(*arguments, "--data", str(texts), "--json")
    result = json.loads(again)
    assert (code, result["kind"], result["out"]) == (0, kind, str(out)), "repeating a finished run completes"
    assert result["bytes"] == sum(path.stat().st_size for path in out.glob("*.safetensors"))
    assert result["tokens_per_round"] == pytest.approx(1 + sum(result["accepted"]), abs=1e-3)
    generate = ("local", "generate", "def f(x):", "-m", str(target), "--max-tokens", "12", "--json")
    plain = json.loads(run(*generate, "--method", "plain")[1])
    drafted = json.loads(run(*generate, "--heads", str(out), "--draft-length", "2")[1])
    assert drafted["speculation"]["method"] == kind.rstrip("3")
    assert drafted["token_ids"] == plain["token_ids"]


def test_prompts_are_read_from_lines(run, target, tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"def f{i}(x): return x"}) + "\n" for i in range(12)))
    out = str(tmp_path / "out")
    code, text, _ = run(
        *("local", "train", "heads", "-m", str(target), "--kind", "medusa", "--out", out, *QUICK),
        *("--data", str(path), "--json"),
    )
    assert code == 0
    assert len(json.loads(text)["accepted"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--kind", "lstm"), 2, "'lstm' is not one of 'medusa', 'eagle', 'eagle3'"),
        (("--kind", "eagle3", "--taps", "a,b"), 2, "'a,b' is not a list of layers"),
        (("--kind", "eagle3", "--taps", "1,2,9"), 3, "taps are 1, 2, 9"),
        (("--kind", "medusa", "--new", "500"), 3, "exceed the target's context of 128"),
    ],
)
def test_invalid_training_arguments_are_named(
    run, target, texts, tmp_path, arguments, code: int, named: str
) -> None:
    given = ("-m", str(target), "--data", str(texts), "--out", str(tmp_path / "out"))
    found, _, err = run("local", "train", "heads", *given, *QUICK, *arguments)
    assert found == code
    assert named in err


def test_a_single_training_text_is_an_error(run, target, tmp_path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "one.py").write_text("x = 1\n")
    given = (
        "-m",
        str(target),
        "--data",
        str(tmp_path / "few"),
        "--out",
        str(tmp_path / "out"),
        "--kind",
        "eagle",
    )
    code, _, err = run("local", "train", "heads", *given)
    assert code == 3
    assert "has 1 texts; at least two are required" in err
