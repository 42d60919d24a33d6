"""Output files of batches, which a later run can resume after a crash.

Each record is written at once, as one line, so a killed process loses only answers in flight. The file is
synced to disk once a second and at the end, so a power failure can lose the records of the last second; their
lines are sent again. Opening a file removes an incomplete line at its end and, if failed lines are retried,
their records.
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
    """The records of earlier runs.

    Attributes:
        done: number of answered lines.
        failed: number of failed lines that are not retried.
        cost: dollars of all records with a known cost.
    """

    done: int = 0
    failed: int = 0
    cost: Decimal = Decimal(0)


class RecordFile:
    """A file of records, open for appending and locked for one process.

    Args:
        path: the file; created if it does not exist.
        ids: the index in which done lines are recorded.
        retry_failed: whether to retry failed lines.

    Raises:
        ConfigurationError: the file cannot be written, another batch is writing it, or it contains other
            data.
    """

    def __init__(self, path: Path, ids: LineIndex, *, retry_failed: bool) -> None:
        self._path = path
        self._synced = 0.0
        try:
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from None
        try:
            self._lock(self._file, path)
            self.before = self._resume(ids, retry_failed=retry_failed)
        except BaseException:
            self._file.close()
            raise

    def _lock(self, file: BinaryIO, path: Path) -> None:
        """Lock a file against other batches."""
        if sys.platform == "win32":
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:  # else it has just been replaced
                return
        raise ConfigurationError(
            f"another batch is writing {self._path}; wait for it, or choose another file"
        )

    def _resume(self, ids: LineIndex, *, retry_failed: bool) -> EarlierRecords:
        before = EarlierRecords()
        rewrite = False
        for _, record in self._records():
            if not record.ok and retry_failed:
                rewrite = True
            elif not ids.mark_done(record.key):
                rewrite = True  # a second record of a line
            else:
                before.done += record.ok
                before.failed += not record.ok
                before.cost += record.cost or 0
        if rewrite:
            self._rewrite(retry_failed=retry_failed)
        return before

    def _records(self) -> Iterator[tuple[bytes, WrittenRecord]]:
        """Yield the records, and remove an incomplete one at the end.

        Raises:
            ConfigurationError: the file contains other data.
        """
        end = 0
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                record = parse_record(raw)
                if record is None and (raw.endswith(b"\n") or not is_truncated_record(raw)):
                    raise self._foreign(number)
                if record is None:
                    os.ftruncate(self._file.fileno(), end)
                    return
                if not raw.endswith(b"\n"):  # only the newline is missing
                    self._append(b"\n")
                    yield raw + b"\n", record
                    return
                end += len(raw)
                yield raw, record

    def _foreign(self, number: int) -> ConfigurationError:
        return ConfigurationError(
            f"line {number} of {self._path} is not a batch record, so the file is not changed; "
            "choose another file"
        )

    def _rewrite(self, *, retry_failed: bool) -> None:
        """Atomically replace the file by one with a single record of each line."""
        temporary = self._path.with_name(f".{self._path.name}.rewritten")
        written = LineIndex()
        with contextlib.closing(written):
            file = temporary.open("w+b", buffering=0)
            try:
                self._lock(file, temporary)
                with temporary.open("wb") as buffered:
                    for raw, record in self._records():
                        if (record.ok or not retry_failed) and written.mark_done(record.key):
                            buffered.write(raw)
                    buffered.flush()
                    os.fsync(buffered.fileno())
                temporary.chmod(self._path.stat().st_mode & 0o777)
                temporary.replace(self._path)
                _sync_folder(self._path.parent)
            except BaseException:
                file.close()
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()
                raise
        file.seek(0, os.SEEK_END)
        self._file.close()
        self._file = file

    async def write(self, line: bytes, now: float) -> None:
        """Append a record.

        Args:
            line: the record as a line.
            now: monotonic seconds.

        Raises:
            OSError: the record is not in the file, or a part of it only, which the next run removes.
        """
        self._append(line)
        if now - self._synced >= SYNC_INTERVAL_S:
            self._synced = now
            await run_in_thread(self._sync)

    def _append(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:  # which does not name the file
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def _sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close."""
        with self._file:
            self._sync()


class RecordStream:
    """Output to a stream that cannot be resumed: a pipe, a terminal, a device.

    Args:
        stream: the output stream.
        owned: whether :meth:`close` closes it.
    """

    def __init__(self, stream: BinaryIO, *, owned: bool = False) -> None:
        self._stream = stream
        self._owned = owned
        self.before = EarlierRecords()

    async def write(self, line: bytes, now: float) -> None:  # noqa: ARG002 - same signature as RecordFile.write
        """Write a record and flush it."""
        self._stream.write(line)
        self._stream.flush()

    def close(self) -> None:
        """Close the stream if it is owned."""
        if self._owned:
            self._stream.close()


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename survives a power failure; not all systems support it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
