"""Training and held-out texts from a file, a folder or a data set of the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from specclient.errors import ConfigurationError

SUFFIXES = (".py", ".txt", ".md", ".rst", ".toml", ".yaml", ".yml", ".c", ".h", ".js", ".ts", ".rs", ".go")
_ROWS = ".jsonl"
_KINDS = f" ({_ROWS}, {', '.join(SUFFIXES)})"
_HELD = 10
"""One text in ten is held out, chosen by a hash of its name."""


def load_texts(data: str) -> tuple[list[str], list[str], bool]:
    """Return training texts, held-out texts, and whether the texts are prompts.

    A file has one object like ``{"prompt": "…"}`` per line. A folder or a data set of the hub has such files,
    or else texts from which prompts are cut; these are held out file by file.

    Args:
        data: file, folder, or hub id as ``owner/name``.

    Raises:
        ConfigurationError: the data cannot be read, or has fewer than two texts.
    """
    from specclient_local.measure.prompts import read_prompts  # noqa: PLC0415 - imports torch

    path = Path(data).expanduser()
    if not path.exists():
        path = _download(data)
    if path.is_file():
        return (
            *split_held_out({str(i): text for i, text in enumerate(read_prompts(path))}, data, _KINDS),
            True,
        )
    rows = sorted(path.rglob(f"*{_ROWS}"))
    if rows:
        named = {f"{file} {i}": text for file in rows for i, text in enumerate(read_prompts(file))}
        return (*split_held_out(named, data, _KINDS), True)
    return (*split_held_out(dict(read_texts(path, SUFFIXES)), data, _KINDS), False)


def _download(name: str) -> Path:
    """Download a data set of the hub and return its folder.

    Raises:
        ConfigurationError: there is no such file or folder, and no data set that can be downloaded.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ConfigurationError(
            f"data is {name!r}, which does not exist; give a file of prompts, a folder of texts, or a data "
            "set of the hub as owner/name."
        )
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - used only for hub ids
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    wanted = [f"*{suffix}" for suffix in (_ROWS, *SUFFIXES)]
    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=wanted))
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise ConfigurationError(
            f"data is {name!r}: not a local file or folder, and the data set could not be downloaded from "
            f"the hub ({type(error).__name__}); check the name and the connection, or download it "
            "and give its folder."
        ) from error


def read_texts(folder: Path, suffixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file in a folder with one of the suffixes, ordered by path."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or not path.is_file():
            continue
        try:
            yield str(path.relative_to(folder)), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # source trees contain test files in other encodings


def split_held_out(named: dict[str, str], data: str | Path, kinds: str = "") -> tuple[list[str], list[str]]:
    """Return training texts and held-out texts.

    The choice depends only on the names, so it is the same in every run. At least one text is held out.

    Args:
        named: texts by name.
        data: their source, for the error message.
        kinds: the suffixes that were searched, for the error message.

    Raises:
        ConfigurationError: there are fewer than two texts.
    """
    named = {name: text for name, text in named.items() if text.strip()}
    if len(named) < 2:
        raise ConfigurationError(
            f"{data} has {len(named)} texts{kinds}; at least two are required, because one is held out."
        )
    held = {name for name in named if hashlib.sha256(name.encode()).digest()[0] % _HELD == 0}
    held = held if 0 < len(held) < len(named) else {next(iter(named))}
    return (
        [text for name, text in named.items() if name not in held],
        [text for name, text in named.items() if name in held],
    )
