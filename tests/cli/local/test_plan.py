"""``specclient local plan``: memory requirements from models' configurations alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest
import tiny_heads
from specclient_cli.local.plan import MemorySize
from tiny_vocabularies import copy_with_other_tokenizer, lettered


@pytest.fixture
def shape(pair, tmp_path: Path) -> Path:
    """A checkpoint folder that contains only config.json."""
    folder = tmp_path / "shape"
    folder.mkdir()
    shutil.copy(pair[0] / "config.json", folder)
    return folder


def test_a_plan_needs_only_the_configuration(run, shape) -> None:
    code, out, err = run("local", "plan", str(shape), "--slots", "3", "--context", "128", "--json")
    plan = json.loads(out)
    assert (code, err) == (0, "")
    (device,) = plan["devices"]
    (model,) = device["models"]
    # Two layers, each with two heads of 8 for keys and two for values, 4 bytes per number.
    assert model["kv_per_token"] == device["kv_per_token"] == 2 * 2 * 2 * 8 * 4
    assert device["caches"] == 3 * 128 * model["kv_per_token"]
    assert device["weights"] >= 4 * model["parameters"]
    assert device["total"] >= device["weights"] + device["caches"]
    assert (device["fits"], device["max_context"]) == (True, 512)
    halved = json.loads(run("local", "plan", str(shape), "--dtype", "float16", "--json")[1])["devices"][0]
    assert 2 * halved["weights"] == device["weights"]


def test_maximum_context_and_slots_fit_the_memory(run, shape) -> None:
    arguments = ("local", "plan", str(shape), "--context", "512", "--slots", "8", "--json")
    (whole,) = json.loads(run(*arguments)[1])["devices"]
    short = whole["total"] - whole["caches"] // 2
    (device,) = json.loads(run(*arguments, "--memory", str(short))[1])["devices"]
    assert not device["fits"]
    assert 0 < device["max_context"] < 512
    assert 0 < device["max_slots"] < 8
    for fewer in (("--slots", str(device["max_slots"])), ("--context", str(device["max_context"]))):
        (fitting,) = json.loads(run(*arguments, "--memory", str(short), *fewer)[1])["devices"]
        assert fitting["fits"]
    (more,) = json.loads(run(*arguments, "--memory", str(short), "--slots", str(device["max_slots"] + 1))[1])[
        "devices"
    ]
    assert not more["fits"]


def test_a_pair_is_shown_with_its_total(run, local, pair) -> None:
    code, out, _ = run("local", "plan", "demo")
    assert code == 0
    header, target, draft, together, verdict, room = out.splitlines()
    assert [line.split()[0] for line in (target, draft, together)] == ["target", "draft", "together"]
    assert "KV per token" in header
    assert verdict.startswith("✓ fits: ")
    assert room.startswith("room for context up to 512 with 4 slots, or up to ")


def test_pages_are_planned_by_the_tokens_that_fit(run, shape) -> None:
    arguments = ("local", "plan", str(shape), "--slots", "3", "--context", "128", "--kv-cache", "paged")
    (device,) = json.loads(run(*arguments, "--json")[1])["devices"]
    assert device["cache_tokens"] == 3 * 192, "the context and the positions of padding, in whole pages"
    assert device["max_cache_tokens"] > device["cache_tokens"]
    assert device["caches"] == (device["cache_tokens"] + 3 * 64) * device["kv_per_token"]
    code, out, _ = run(*arguments, "--cache-tokens", "256")
    assert code == 0
    assert out.splitlines()[0].endswith("caches")
    assert "the pages hold 256 tokens, of all 3 slots together; there is room for pages of" in " ".join(
        out.split()
    )


def test_a_plan_that_does_not_fit_fails(run, local, pair) -> None:
    code, out, err = run("local", "plan", "demo", "--memory", "1KiB")
    assert code == 3
    assert "✗ does not fit" in out
    assert "room for" not in out
    assert "cpu has 0.0 MiB free. They fit in no format: " in err
    code, out, _ = run("local", "plan", "demo", "--memory", "1KiB", "--json")
    assert (code, json.loads(out)["devices"][0]["fits"]) == (3, False)


def test_a_gguf_file_is_planned_like_its_checkpoint(run, pair, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from gguf_files import write_gguf

    folder = Path(shutil.copytree(pair[0], tmp_path / "target"))
    file = write_gguf(folder, tmp_path / "target.gguf", "F16")
    plans = [
        json.loads(run("local", "plan", str(each), "--memory", "1GiB", "--json")[1])
        for each in (folder, file)
    ]
    assert plans[0]["devices"] == plans[1]["devices"]
    code, out, _ = run("local", "plan", str(file), "--draft", str(folder))
    assert code == 0
    assert "vocabulary" not in out, "the file's tokens are those of the folder"
    file.write_bytes(file.read_bytes()[:-100])
    code, _, err = run("local", "plan", str(file))
    assert code == 1
    assert "but ends at" in err


def test_only_the_configuration_of_a_hub_id_is_downloaded(
    run, shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(shape)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert run("local", "plan", "some/model", "--draft", "some/other")[0] == 0
    assert asked == [
        (name, ["config.json", "generation_config.json"]) for name in ("some/model", "some/other")
    ]


def test_heads_are_planned_with_their_hidden_states(run, tmp_path: Path) -> None:
    from tiny_models import write_checkpoint

    target = write_checkpoint(tmp_path / "target", **tiny_heads.TARGET)
    own = [tiny_heads.medusa(tmp_path / "medusa"), tiny_heads.eagle3(tmp_path / "eagle")]
    arguments = ("local", "plan", str(target), *(word for folder in own for word in ("--heads", str(folder))))
    code, out, _ = run(*arguments)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:6]] == [
        "target",
        "hidden",
        "medusa",
        "eagle",
        "together",
    ]
    (device,) = json.loads(run(*arguments, "--json")[1])["devices"]
    _, states, medusa, eagle = device["models"]
    # EAGLE-3 reads the states after layers 1 and 2 of four, Medusa after the last: three rows of 32 numbers.
    assert (states["kv_per_token"], states["weights"]) == (3 * 32 * 4, 300 * 32 * 4)
    assert (medusa["kv_per_token"], medusa["weights"]) == (0, 3 * (32 + 300) * 32 * 4)
    assert eagle["kv_per_token"] == 2 * 2 * 8 * 4
    assert device["caches"] == sum(model["caches"] for model in device["models"])


@pytest.mark.parametrize(
    ("asked", "way", "message"),
    [
        (
            (),
            "shared",
            "it is restricted to the tokens that both have (draft_vocabulary='shared'); answers stay",
        ),
        (("--draft-vocabulary", "retokenised"), "retokenised", "its text is re-encoded by the target's"),
        (
            ("--draft-vocabulary", "same"),
            "refused",
            "and is refused: draft_vocabulary is 'same'; leave it out",
        ),
    ],
)
def test_the_handling_of_a_draft_with_another_vocabulary_is_stated(
    run, pair, tmp_path, asked, way, message
) -> None:
    target, draft = pair
    other = copy_with_other_tokenizer(draft, tmp_path / "other")
    arguments = ("local", "plan", str(target), "--draft", str(draft), "--draft", str(other), *asked)
    plan = json.loads(run(*arguments, "--json")[1])
    assert [(each["draft"], each["way"]) for each in plan["other_vocabularies"]] == [(str(other), way)]
    code, out, _ = run(*arguments)
    flat = " ".join(out.split())
    assert code == 0
    assert f"{other} has another vocabulary ({plan['other_vocabularies'][0]['difference']}" in flat
    assert message in flat
    assert f"{draft} has another vocabulary" not in flat


def test_a_draft_without_shared_tokens_is_refused_with_a_remedy(run, pair, tmp_path) -> None:
    from tiny_models import write_checkpoint

    other = write_checkpoint(tmp_path / "other", vocab_size=9, tokenizer=lettered("¤αβγδεζηθ"))
    flat = " ".join(run("local", "plan", str(pair[0]), "--draft", str(other))[1].split())
    assert "has another vocabulary" in flat
    assert "✗" in flat
    assert "choose a draft of the target's family, or method 'ngram'" in flat


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere/none",), 1, "nowhere/none is not a local folder and could not be downloaded"),
        (("demo", "--context", "513"), 3, "context is 513; allowed is 2 to 512"),
        (("demo", "--memory", "lots"), 2, "'lots' is not a size; write 24GiB or 80GB"),
        (("demo", "--device", "tpu"), 3, "device is 'tpu'; allowed are auto, cpu"),
    ],
)
def test_invalid_arguments_of_a_plan_are_errors(run, local, arguments, code, message) -> None:
    found, out, err = run("local", "plan", *arguments)
    assert (found, out) == (code, "")
    assert message in err


def test_memory_sizes_are_parsed() -> None:
    sizes = {"24GiB": 24 * 2**30, "80GB": 80 * 10**9, "1.5 MiB": 3 * 2**19, "512": 512, "2T": 2 * 10**12}
    assert {text: MemorySize().convert(text, None, None) for text in sizes} == sizes
