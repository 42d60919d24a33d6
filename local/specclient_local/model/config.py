"""Model configuration: ``config.json`` read into a checked, frozen description of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient.runtime.allowed_names import allowed_names
from specclient.runtime.masked_urls import mask_url
from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.checkpoint_files import checkpoint_errors, is_gguf, label, read_json, shown
from specclient_local.model.families import families, family_of
from specclient_local.model.families.fields import ConfigFields
from specclient_local.model.stored_format import read_stored_format

__all__ = [
    "BUNDLED",
    "BUNDLED_MARK",
    "DTYPES",
    "PAIR_NAME",
    "DecoderConfig",
    "decoder_config",
    "end_tokens",
    "local_folder",
    "probably_meant",
    "read_config",
    "short_name",
]

BUNDLED = Path(__file__).parent.parent / "bundled"
"""Folder of the bundled checkpoints: a target, its draft and its heads."""

BUNDLED_MARK = "bundled:"  # prefix of their names
PAIR_NAME = "demo"  # the bundled target and its draft
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")

DTYPES = ("float32", "bfloat16", "float16")


def read_config(folder: Path) -> DecoderConfig:
    """Read a checkpoint's ``config.json``, and the end tokens of its ``generation_config.json``.

    Args:
        folder: the checkpoint's folder, or a GGUF file, whose metadata is read instead.

    Raises:
        CheckpointError: names the file, the value and the supported values.
        ConfigurationError: the package that reads GGUF files is not installed.
    """
    if is_gguf(folder):
        from specclient_local.model.gguf.metadata import config_fields  # noqa: PLC0415 - imports numpy

        with checkpoint_errors(folder):
            fields, ends = config_fields(folder)
        return decoder_config(fields, ends, folder)
    path = folder / "config.json"
    raw = read_json(path)
    with checkpoint_errors(folder):
        eos = end_tokens(folder, raw)
    return decoder_config(raw, eos, path)


def decoder_config(raw: Mapping[str, Any], eos: tuple[int, ...], path: Path) -> DecoderConfig:
    """Parse and check the fields of a ``config.json``.

    Args:
        raw: content of the file.
        eos: end token ids.
        path: the file, for error messages.

    Raises:
        CheckpointError: names the file, the value and the supported values.
    """
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in families():
        named = label(raw["architectures"]) if raw.get("architectures") else "unnamed"
        raise CheckpointError(
            f"{path}: model_type {shown(kind)} (architecture {named}) is not supported; "
            f"supported are {', '.join(families())}. Choose a checkpoint of one of these families, or load "
            "it with runner='hf'."
        )
    with checkpoint_errors(path):
        read_stored_format(raw, path)
        return family_of(kind).config(ConfigFields(kind, raw, path, eos))


def end_tokens(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Collect the end token ids; a chat model may list more in ``generation_config.json``."""
    path = folder / "generation_config.json"
    text = raw.get("text_config")  # of a model that also reads images
    tables = [
        raw,
        *([text] if isinstance(text, dict) else []),
        *([read_json(path)] if path.is_file() else []),
    ]
    found: list[int] = []
    for table in tables:
        value = table.get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token in ids:
            if not isinstance(token, int) or isinstance(token, bool):
                raise CheckpointError(f"{folder}: eos_token_id has {shown(token)}; it must be a token id.")
        found += ids
    return tuple(dict.fromkeys(found))


def short_name(path: str) -> str:
    """Return a short name of a checkpoint for messages: the last two parts of its path, or its hub id."""
    return "/".join(Path(path).parts[-2:])


def local_folder(name: str) -> Path | None:
    """Return the folder of a local checkpoint or its GGUF file, or None for a hub id. No network access.

    Args:
        name: folder, GGUF file, hub id, or ``bundled:`` and the name of a bundled checkpoint.

    Raises:
        CheckpointError: the name is none of these.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith(BUNDLED_MARK):
        known = {path.parent.name: path.parent for path in BUNDLED.glob("*/config.json")}
        if (own := name.removeprefix(BUNDLED_MARK)) not in known:
            there = [BUNDLED_MARK + each for each in sorted(known)]
            raise CheckpointError(
                f"{name} is not bundled; {allowed_names(name, there, prefix=BUNDLED_MARK)}."
            )
        return known[own]
    if is_gguf(folder):
        if not folder.exists():
            raise CheckpointError(f"{name} does not exist; name a GGUF file, a folder, or a hub id.")
        return folder
    if folder.exists():
        raise CheckpointError(
            f"{name} is a file; name the folder that contains config.json and *.safetensors, or a GGUF file."
        )
    if not _HUB_ID.fullmatch(name):
        raise CheckpointError(
            f"{mask_url(name) if '://' in name else name} is not a folder; "
            f"{probably_meant(name)}name one with config.json and *.safetensors, or a hub id as owner/name."
        )
    return None


def probably_meant(name: str) -> str:
    """Return a part of an error: the bundled model that was probably meant by a name that is no folder, or
    nothing.
    """
    bare = name.removeprefix("local/")
    if bare == PAIR_NAME:  # in the place of a draft or heads
        return (
            f"{PAIR_NAME} is a pair, of {BUNDLED_MARK}target and {BUNDLED_MARK}draft. Write one of these, or "
        )
    return f"did you mean {PAIR_NAME!r}? Otherwise " if get_close_matches(bare, [PAIR_NAME], n=1) else ""
