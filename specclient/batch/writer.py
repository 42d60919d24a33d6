"""Turn records into lines of a file that a killed run leaves usable, and find in it what is done.

Each record is written by itself as soon as it is there, as one whole line: a killed process loses no answer
but those in flight. The file is synced to disk once a second and at the end: a power cut may lose the records
of the last second, and their lines are sent again. On opening, half a line at the end is cut off, and the
records of failed lines are taken out, unless they are to stay: the lines are tried again.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

from specclient.batch.line_index import LineIndex
from specclient.batch.records import WrittenRecord, is_truncated_record, parse_record
from specclient.errors import ConfigurationError
from specclient.runtime.event_loop import run_in_thread

if sys.platform != "win32":
    import fcntl

SYNC_INTERVAL_S = 1.0


@dataclass(slots=True)
class EarlierRecords:
    """What a file told of earlier runs.

    Attributes:
        done: lines that were answered; ``failed``: those that failed, and stay so.
        cost: dollars of all its records that tell them.
    """

    done: int = 0
    failed: int = 0
    cost: Decimal = Decimal(0)


class RecordFile:
    """A file of records, open for more; one process at a time has it.

    Args:
        path: made where it is not there.
        ids: told which lines are done.
        retry_failed: whether failed lines are tried again.

    Raises:
        ConfigurationError: it cannot be written, another batch writes it, or it holds something else.
    """

    def __init__(self, path: Path, ids: LineIndex, *, retry_failed: bool) -> None:
        self._path = path
        self._synced = 0.0
        try:
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from None
        try:
            self._own(self._file, path)
            self.before = self._resume(ids, retry_failed=retry_failed)
        except BaseException:
            self._file.close()
            raise

    def _own(self, file: BinaryIO, path: Path) -> None:
        """Keep other batches from a file."""
        if sys.platform == "win32":
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:  # or it has just been replaced
                return
        raise ConfigurationError(f"another batch is writing {self._path}; wait for it, or name another file")

    def _resume(self, ids: LineIndex, *, retry_failed: bool) -> EarlierRecords:
        before = EarlierRecords()
        again = False
        for _, told in self._records():
            if not told.ok and retry_failed:
                again = True
            elif not ids.settle(told.key):
                again = True  # a line's second record
            else:
                before.done += told.ok
                before.failed += not told.ok
                before.cost += told.cost or 0
        if again:
            self._rewrite(retry_failed=retry_failed)
        return before

    def _records(self) -> Iterator[tuple[bytes, WrittenRecord]]:
        """Yield whole records; half of one at the end is cut off.

        Raises:
            ConfigurationError: something else stands there.
        """
        end = 0
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                told = parse_record(raw)
                if told is None and (raw.endswith(b"\n") or not is_truncated_record(raw)):
                    raise self._foreign(number)
                if told is None:
                    os.ftruncate(self._file.fileno(), end)
                    return
                if not raw.endswith(b"\n"):  # all but the end of its line was written
                    self._append(b"\n")
                    yield raw + b"\n", told
                    return
                end += len(raw)
                yield raw, told

    def _foreign(self, number: int) -> ConfigurationError:
        return ConfigurationError(
            f"line {number} of {self._path} is no record of a batch, so nothing is written there; "
            "name another file"
        )

    def _rewrite(self, *, retry_failed: bool) -> None:
        """Replace the file by one that holds each line's record once: whole, or not at all."""
        beside = self._path.with_name(f".{self._path.name}.rewritten")
        kept = LineIndex()
        with contextlib.closing(kept):
            file = beside.open("w+b", buffering=0)
            try:
                self._own(file, beside)
                with beside.open("wb") as buffered:
                    for raw, told in self._records():
                        if (told.ok or not retry_failed) and kept.settle(told.key):
                            buffered.write(raw)
                    buffered.flush()
                    os.fsync(buffered.fileno())
                beside.chmod(self._path.stat().st_mode & 0o777)
                beside.replace(self._path)
                _sync_folder(self._path.parent)
            except BaseException:
                file.close()
                with contextlib.suppress(FileNotFoundError):
                    beside.unlink()
                raise
        file.seek(0, os.SEEK_END)
        self._file.close()
        self._file = file

    async def write(self, line: bytes, now: float) -> None:
        """Append a record; ``now``: monotonic seconds."""
        self._append(line)
        if now - self._synced >= SYNC_INTERVAL_S:
            self._synced = now
            await run_in_thread(self._sync)

    def _append(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) or 0 :]

    def _sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close."""
        with self._file:
            self._sync()


class RecordStream:
    """A stream of records that nobody can read back: a pipe, a terminal, a device.

    Args:
        stream: written to; closed at the end if it is ``owned``.
    """

    def __init__(self, stream: BinaryIO, *, owned: bool = False) -> None:
        self._stream = stream
        self._owned = owned
        self.before = EarlierRecords()

    async def write(self, line: bytes, now: float) -> None:  # noqa: ARG002 - as Output's
        """Write a record and flush it."""
        self._stream.write(line)
        self._stream.flush()

    def close(self) -> None:
        """Close the stream, if it is ours."""
        if self._owned:
            self._stream.close()


def _sync_folder(folder: Path) -> None:
    """Have a renamed file survive a power cut, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
