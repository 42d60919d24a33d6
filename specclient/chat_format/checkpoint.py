"""Chat templates read from a checkpoint's files: a folder, a single file, or an id of Hugging Face's hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from specclient.chat_format.template import ChatTemplate
from specclient.errors import ConfigurationError

#: The most bytes of a file that are read: the tokenizer of a vocabulary of 256,000 tokens takes 35 MB.
MAX_FILE_BYTES = 128 * 2**20
#: Files that are downloaded from the hub.
_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json", "special_tokens_map.json",
          "generation_config.json", "tokenizer.json")  # fmt: skip


@lru_cache(maxsize=64)
def load_chat_template(name: str) -> ChatTemplate:
    """Return a checkpoint's chat template; it is read once.

    Args:
        name: a checkpoint's folder; a Jinja file or a ``tokenizer_config.json``, whose folder may hold the
            other files of the checkpoint; or a hub id, whose files are downloaded.

    Raises:
        ConfigurationError: there is no such file, it cannot be read or downloaded, or the checkpoint has no
            chat template.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix != ".json":
        return _template(name, path.parent, _text(path))
    if path.is_file():
        return _template(name, path.parent, _config_template(_object(path)))
    folder = path if path.is_dir() else _downloaded(name)
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        return _template(name, folder, _text(jinja))
    for other in ("chat_template.json", "tokenizer_config.json"):
        if text := _config_template(_object(folder / other)):
            return _template(name, folder, text)
    raise ConfigurationError(
        f"template {name!r} names a checkpoint without a chat template; name that of an instruction-tuned "
        "model, or a file with the template"
    )


def _downloaded(name: str) -> Path:
    """Return the folder of a hub id's small files, downloaded where they are not in the hub's cache."""
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or name.endswith((".jinja", ".json")):
        raise ConfigurationError(
            f"template is {name!r}, and there is no such file or folder; name a checkpoint's folder, a Jinja "
            "file, or a hub id such as 'Qwen/Qwen3-8B'"
        )
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - optional; only for hub ids
        from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            f"template {name!r} is downloaded by huggingface_hub: pip install 'specclient[templates]'"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise ConfigurationError(
            f"template {name!r} is no local file or folder, and could not be downloaded from the hub "
            f"({type(error).__name__}); check name and connection, or name the checkpoint's folder"
        ) from error


def _template(name: str, folder: Path, text: Any) -> ChatTemplate:
    """Return a template with the special tokens and end tokens of its folder's other files."""
    texts = {"default": text} if isinstance(text, str) else text
    if not texts or "default" not in texts:
        raise ConfigurationError(f"template {name!r} has no chat template")
    config = _object(folder / "tokenizer_config.json")
    special = {**_special_tokens(_object(folder / "special_tokens_map.json")), **_special_tokens(config)}
    ids = _added_tokens(_object(folder / "tokenizer.json"), config)
    ends = _object(folder / "generation_config.json").get("eos_token_id")
    return ChatTemplate(
        name,
        texts["default"],
        texts.get("tool_use"),
        special,
        ids,
        tuple(each for each in (ends if isinstance(ends, list) else [ends]) if type(each) is int),
    )


def _config_template(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates in a ``tokenizer_config.json`` by name."""
    found = config.get("chat_template")
    if isinstance(found, str) and found:
        return {"default": found}
    rows = [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []
    return {str(row["name"]): str(row["template"]) for row in rows if {"name", "template"} <= row.keys()}


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of special tokens by name; a token is a text, or an object with its content."""
    found: dict[str, Any] = {}
    for name, token in config.items():
        text = token.get("content") if isinstance(token, Mapping) else token
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _added_tokens(tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of added tokens by their text."""
    decoder = config.get("added_tokens_decoder")
    rows: list[Mapping[str, Any]] = []
    if isinstance(decoder, Mapping):
        rows += [{**row, "id": number} for number, row in decoder.items() if isinstance(row, Mapping)]
    listed = tokenizer.get("added_tokens")
    rows += [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return {
        row["content"]: int(row["id"])
        for row in rows
        if isinstance(row.get("content"), str) and str(row.get("id")).isdecimal() and row["content"]
    }


def _text(path: Path) -> str:
    """Return a file's text.

    Raises:
        ConfigurationError: it cannot be read, or is too large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path} has {size} bytes; at most {MAX_FILE_BYTES} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None


def _object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; empty where there is no file.

    Raises:
        ConfigurationError: it is no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} contains a {type(found).__name__}; an object is expected")
    return found
