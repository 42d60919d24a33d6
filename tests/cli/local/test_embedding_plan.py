"""``specclient local plan`` and other commands with an embedding model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest
from specclient_cli.common.state import State
from specclient_cli.serve.plan import _served_models
from tiny_embeddings import write_embedding_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedding_checkpoint(tmp_path_factory.mktemp("embedding"), kind="bert", steps=("Dense",))


@pytest.fixture(autouse=True)
def _tiny(local: Path, folder: Path) -> None:
    """Configure ``tiny``, an embedding model."""
    local.write_text(f'[local]\nthreads = 1\n[local.models.tiny]\nkind = "embedding"\npath = "{folder}"\n')


@pytest.mark.parametrize("name", ["tiny", "local/tiny", "folder"])
def test_a_plan_has_weights_and_batches(run, folder: Path, name: str) -> None:
    code, out, err = run("local", "plan", str(folder) if name == "folder" else name, "--json")
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert (plan["kind"], plan["dimensions"], plan["context"], plan["fits"]) == ("embedding", 24, 64, True)
    assert plan["weights"] == 4 * plan["parameters"]
    assert plan["total"] == plan["weights"] + plan["passes"]


def test_a_plan_needs_no_weights(run, folder: Path, tmp_path: Path) -> None:
    whole = json.loads(run("local", "plan", str(folder), "--json")[1])
    shape = tmp_path / "shape"
    for path in folder.rglob("*.json"):
        copy = shape / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    plan = json.loads(run("local", "plan", str(shape), "--dtype", "bfloat16", "--json")[1])
    assert 2 * plan["weights"] == whole["weights"]


def test_only_the_shape_of_a_hub_id_is_downloaded(
    run, local: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, *, allow_patterns: list[str]) -> str:
        assert name == "some/model"
        assert all(pattern.endswith(".json") and pattern != "*.json" for pattern in allow_patterns)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    local.write_text('[local.models.tiny]\nkind = "embedding"\npath = "some/model"\n')
    assert json.loads(run("local", "plan", "tiny", "--json")[1])["dimensions"] == 24


def test_a_plan_is_a_table(run) -> None:
    code, out, _ = run("local", "plan", "tiny")
    assert code == 0
    assert "embedding model" in out
    assert "✓ fits" in out
    code, out, err = run("local", "plan", "tiny", "--memory", "10KB")
    assert code == 3
    assert "cpu has 0.0 MiB free" in err
    assert "✗ does not fit" in out


def test_options_of_decoding_are_refused(run) -> None:
    code, _, err = run("local", "plan", "tiny", "--draft", "demo")
    assert code == 3
    assert "draft is ('demo',), but an embedding model drafts nothing" in err


@pytest.mark.parametrize(
    "command",
    [
        ("generate", "def f(x):", "-m", "tiny"),
        ("bench", "-m", "local/tiny"),
        ("export", "tiny", "--to", "vllm"),
        ("pick", "--target", "tiny"),
    ],
    ids=lambda command: command[0],
)
def test_commands_of_decoding_name_the_kind(run, command: tuple[str, ...]) -> None:
    code, _, err = run("local", *command)
    assert code == 3
    assert "local/tiny is a model of kind 'embedding', which serves embeddings.create" in err


def test_lists_state_the_kind(run) -> None:
    (row,) = (r for r in json.loads(run("models", "--json")[1])["local"] if r["model"] == "local/tiny")
    assert (row["kind"], row["method"], row["dimensions"]) == ("embedding", "embedding", 24)
    shown = json.loads(run("models", "show", "local/tiny", "--json")[1])
    assert (shown["kind"], shown["context"], shown["dimensions"]) == ("embedding", 64, 24)
    assert "local/tiny" in run("models", "list", "local")[1].splitlines()


def test_the_configurations_check_names_the_file(run, local: Path, folder: Path, tmp_path: Path) -> None:
    assert run("config", "check")[0] == 0
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "modules.json").unlink()
    local.write_text(f'[local.models.tiny]\nkind = "embedding"\npath = "{copy}"\n')
    code, out, _ = run("config", "check")
    assert code == 3
    assert "has no modules.json" in " ".join(out.split())


def test_a_folder_is_served_as_an_embedding_model(folder: Path) -> None:
    served = _served_models(State(), [str(folder)], None)
    (route,) = served.models
    table = served.settings.local.models[route.removeprefix("local/")]
    assert (table.kind, table.path) == ("embedding", str(folder))
