"""The log of a server: bounded in size, without keys, and its last lines for errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 16 * 2**20
"""Size at which the log is renamed to ``log.1``, which replaces an earlier one."""

_HIDDEN = b"[key]"
_TAIL_BYTES, _LINES, _LINE_CHARACTERS = 64 * 1024, 5, 240
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TELLING = re.compile(
    r"error|exception|failed|cannot|could not|unable|not found|no such|out of memory|denied|refused|"
    r"in use|unrecognized|unknown|invalid|unsupported|killed|killing|fatal",
    re.IGNORECASE,
)
_FRAME = re.compile(r'^(\S+ )*\s*(File ".*", line \d+|Traceback \(most recent|[~^\s]+$)')

#: How logs report known causes, and the way out of each; the first that fits is told.
_ADVICE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"out of memory|cannot allocate memory|no available memory|failed to allocate|"
            r"less than desired GPU memory|larger than the available KV cache",
            re.IGNORECASE,
        ),
        "there is not enough memory: set a smaller context, choose a smaller model or dtype, or stop another "
        "server (`specclient local ps` lists them)",
    ),
    (
        re.compile(
            r"address already in use|while attempting to bind|cannot bind|couldn't bind", re.IGNORECASE
        ),
        "its port is in use: use {port} in command, which is a free port at each start, or call again",
    ),
    (
        re.compile(
            r"unrecognized arguments|unknown argument|invalid choice|no such option|unexpected argument",
            re.IGNORECASE,
        ),
        "this version does not know an option of the command: install another version, or change arguments",
    ),
    (
        re.compile(
            r"not a valid model|unrecognized model|does not recognize this architecture|"
            r"not supported for now|does not appear to have a file|repository not found|"
            r"failed to load model|error loading model|"
            r"is not a local folder|invalid repository id|checkpoint",
            re.IGNORECASE,
        ),
        "it does not accept the checkpoint: check path and draft, or choose another engine",
    ),
    (
        re.compile(r"no module named", re.IGNORECASE),
        "a package is missing in its environment: install the server there, or name another in python",
    ),
)


class ServerLog:
    """Writes the output of a server to its log.

    Args:
        path: the log.
        secrets: texts that are replaced, because servers print their options.
    """

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self._path = path
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._held = b""
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        """Write output; the end of a line that is not complete yet is held back, unless it is long."""
        data = self._held + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _TAIL_BYTES:
            end = len(data) - max((len(each) for each in self._secrets), default=0)
        self._held = data[end:]
        self._put(data[:end])

    def close(self) -> None:
        """Write what was held back, and close the file."""
        self._put(self._held)
        self._held = b""
        self._file.close()

    def _put(self, data: bytes) -> None:
        for secret in self._secrets:
            data = data.replace(secret, _HIDDEN)
        if not data:
            return
        with suppress(OSError):  # a full disk loses output, not the server
            if self._size + len(data) > MAX_BYTES:
                self._rotate()
            self._file.write(data)
            self._size += len(data)

    def _rotate(self) -> None:
        self._file.close()
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._file, self._size = self._path.open("ab", buffering=0), 0


def last_lines(path: Path, begin: int = 0) -> list[str]:
    """Return the last lines of a log, without colours and blank lines.

    Args:
        path: the log.
        begin: the size that it had when the run began; earlier output is another run's.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0 if size < begin else begin, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = (" ".join(_ANSI.sub("", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def telling_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines that say why a server ended: the last ones that report errors, else the last ones."""
    without_frames = [line for line in lines if not _FRAME.match(line)]
    telling = [line for line in without_frames[-60:] if _TELLING.search(line)]
    chosen = telling[-_LINES:] or without_frames[-_LINES:]
    return [line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}…" for line in chosen]


def advice_of(lines: Sequence[str]) -> str:
    """Return the way out of the cause that a log reports; empty for an unknown cause."""
    text = "\n".join(lines[-200:])
    return next((advice for pattern, advice in _ADVICE if pattern.search(text)), "")
