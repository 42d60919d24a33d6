"""Chat templates in the files of a checkpoint: where they are found, and what is said where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from specclient.chat_format.checkpoint import load_chat_template
from specclient.errors import ConfigurationError

BUNDLED = ROOT / "local" / "specclient_local" / "bundled" / "target"
HELLO = "{{ bos_token }}hello"


def write(folder: Path, **files: Any) -> str:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


def test_the_bundled_checkpoints_template_is_read() -> None:
    template = load_chat_template(str(BUNDLED))
    assert template.render([{"role": "user", "content": "def f():"}]) == "<|bos|>def f():"
    assert template.stop_tokens == {1: "<|eos|>"}
    assert load_chat_template(str(BUNDLED)) is template


def test_a_template_is_found_in_each_place_that_checkpoints_use(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>"}, "chat_template": HELLO}
    for number, files in enumerate((
        {"tokenizer_config__json": config},
        {"tokenizer_config__json": {"bos_token": "<s>"}, "chat_template__jinja": HELLO},
        {"special_tokens_map__json": {"bos_token": "<s>"}, "chat_template__json": {"chat_template": HELLO}},
        {
            "tokenizer_config__json": {
                **config,
                "chat_template": [
                    {"name": "default", "template": HELLO},
                    {"name": "tool_use", "template": "tools"},
                ],
            }
        },
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        template = load_chat_template(write(folder, **files))
        assert template.render([{"role": "user", "content": "a"}]) == "<s>hello"
    assert template.tool_text == "tools"


def test_a_file_may_be_named_itself(tmp_path: Path) -> None:
    write(
        tmp_path,
        chat__jinja=HELLO,
        tokenizer_config__json={
            "bos_token": "<s>",
            "eos_token": "<e>",
            "chat_template": "other",
            "added_tokens_decoder": {"7": {"content": "<e>"}},
        },
        generation_config__json={"eos_token_id": [7, 8]},
    )
    template = load_chat_template(str(tmp_path / "chat.jinja"))
    assert template.text == HELLO
    assert template.stop_tokens == {7: "<e>", 8: ""}
    assert load_chat_template(str(tmp_path / "tokenizer_config.json")).text == "other"


def test_a_checkpoint_on_the_hub_is_read_from_the_hubs_cache(monkeypatch: Any, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    write(tmp_path, chat_template__jinja="hello")
    asked = []

    def download(name: str, **options: Any) -> str:
        asked.append((name, options["allow_patterns"]))
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert load_chat_template("someone/a-model").text == "hello"
    assert asked[0][0] == "someone/a-model"
    assert "tokenizer_config.json" in asked[0][1]
    assert not [pattern for pattern in asked[0][1] if "safetensors" in pattern]


def test_a_missing_template_is_one_clear_error(monkeypatch: Any, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def download(name: str, **_: Any) -> str:
        raise OSError(f"no connection for {name}")

    monkeypatch.setattr(hub, "snapshot_download", download)
    broken = write(tmp_path, tokenizer_config__json="{", other__json="[]", binary__jinja="x")
    (tmp_path / "binary.jinja").write_bytes(b"\xff\xfe")
    empty = tmp_path / "empty"
    empty.mkdir()
    for name, message in {
        "no/such/file.jinja": "there is no such file or folder; name a checkpoint's folder",
        "nothing": "there is no such file or folder",
        "someone/missing": r"could not be downloaded from the hub \(OSError\); check name and connection",
        str(empty): "names a checkpoint without a chat template",
        broken: "tokenizer_config.json is not valid JSON",
        f"{broken}/other.json": "contains a list; an object is expected",
        f"{broken}/binary.jinja": "cannot read .*binary.jinja",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            load_chat_template(name)
