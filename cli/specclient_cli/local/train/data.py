"""Turn a file, a folder or a data set's hub id into texts to learn from, and others that are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from specclient.errors import ConfigurationError

_SUFFIXES = (".py", ".txt", ".md", ".rst", ".toml", ".yaml", ".yml", ".c", ".h", ".js", ".ts", ".rs", ".go")
_ROWS = ".jsonl"
_KINDS = f" ({_ROWS}, {', '.join(_SUFFIXES)})"
_HELD = 10
"""One text in so many is held out, chosen by its name."""


def load_texts(data: str) -> tuple[list[str], list[str], bool]:
    """Return texts to learn from, texts held out, and whether they are prompts themselves.

    A file has an object like ``{"prompt": "…"}`` a line. A folder, or a data set of the hub, has such files,
    or else texts to cut prompts out of; those are held out file by file.

    Args:
        data: file, folder, or hub id as ``owner/name``.

    Raises:
        ConfigurationError: nothing to be read, or fewer than two texts.
    """
    from specclient_local.measure.prompts import read_prompts  # noqa: PLC0415 - imports torch

    path = Path(data).expanduser()
    if not path.exists():
        path = _fetched(data)
    if path.is_file():
        return (
            *split_held_out({str(i): text for i, text in enumerate(read_prompts(path))}, data, _KINDS),
            True,
        )
    rows = sorted(path.rglob(f"*{_ROWS}"))
    if rows:
        named = {f"{file} {i}": text for file in rows for i, text in enumerate(read_prompts(file))}
        return (*split_held_out(named, data, _KINDS), True)
    return (*split_held_out(dict(read_texts(path, _SUFFIXES)), data, _KINDS), False)


def _fetched(name: str) -> Path:
    """Return the folder of a data set of the hub.

    Raises:
        ConfigurationError: no such file, folder or data set that can be had.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ConfigurationError(
            f"data is {name!r}, which is not there; name a file of prompts, a folder of texts, or a data set "
            "of the hub as owner/name."
        )
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - needed by hub ids alone
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    wanted = [f"*{suffix}" for suffix in (_ROWS, *_SUFFIXES)]
    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=wanted))
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise ConfigurationError(
            f"data is {name!r}: no file or folder here, and no data set that could be fetched from the hub "
            f"({type(error).__name__}); check name and connection, or download it and name its folder."
        ) from error


def read_texts(folder: Path, suffixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file that a folder has of these kinds, in their order."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or not path.is_file():
            continue
        try:
            yield str(path.relative_to(folder)), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # a folder of source may hold files of other encodings on purpose


def split_held_out(named: dict[str, str], data: str | Path, kinds: str = "") -> tuple[list[str], list[str]]:
    """Return texts to learn from, and those held out by their names: the same ones every time.

    The first one is held out where chance holds out none.

    Args:
        named: texts by name.
        data, kinds: what they were looked for in, and as what, for the error.

    Raises:
        ConfigurationError: fewer than two texts.
    """
    named = {name: text for name, text in named.items() if text.strip()}
    if len(named) < 2:
        raise ConfigurationError(f"{data} has {len(named)} texts{kinds}; give two at least: one is held out.")
    held = {name for name in named if hashlib.sha256(name.encode()).digest()[0] % _HELD == 0}
    held = held if 0 < len(held) < len(named) else {next(iter(named))}
    return (
        [text for name, text in named.items() if name not in held],
        [text for name, text in named.items() if name in held],
    )
