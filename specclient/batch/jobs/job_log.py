"""The log of the jobs of an output file, by which a later run finds the jobs of an earlier one.

It is the file ``OUT.jobs`` beside the output: one JSON object per line, appended and synced before and after
each step. A job is noted before it is created, with a token that its lines carry, so that a crash between the
creation and the note of the job's id does not send the lines twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from specclient.batch.lines import BatchLine
from specclient.errors import ConfigurationError

__all__ = ["JobLog", "LineName", "VendorJob"]

#: A line's number, format and id, by which its record is written.
LineName = tuple[int, str, "str | int | None"]


@dataclass(frozen=True, slots=True)
class VendorJob:
    """A job.

    Attributes:
        token: random; begins the ``custom_id`` of each line.
        provider: the name of the provider that runs it.
        lines: its lines, in the order of their numbers in ``custom_id``.
        noted: when it was noted, in UTC.
        reserved: the estimated dollars of its lines.
        id: the provider's id; None if it is not known whether the job was created.
    """

    token: str
    provider: str
    lines: tuple[LineName, ...]
    noted: datetime
    reserved: Decimal = Decimal(0)
    id: str | None = None

    def custom_id(self, index: int) -> str:
        """Return the ``custom_id`` of a line."""
        return f"{self.token}-{index}"

    def named_lines(self) -> dict[str, BatchLine]:
        """Return the lines by ``custom_id``, without their requests."""
        return {
            self.custom_id(index): BatchLine(
                number=number, kind="openai" if kind == "openai" else "plain", id=identity
            )
            for index, (number, kind, identity) in enumerate(self.lines)
        }


class JobLog:
    """The log of an output file.

    Args:
        out: the output file.

    Raises:
        ConfigurationError: the log cannot be read or written.
    """

    def __init__(self, out: Path) -> None:
        self._path = out.with_name(f"{out.name}.jobs")
        self._open: dict[str, VendorJob] = {}
        try:
            if self._path.exists():
                self._read(self._path.read_bytes())
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self._path}: {error.strerror or error}") from None

    @property
    def open_jobs(self) -> tuple[VendorJob, ...]:
        """The jobs whose results are not all written, the oldest first."""
        return tuple(self._open.values())

    def note(self, job: VendorJob) -> None:
        """Note a job that will be created."""
        self._open[job.token] = job
        self._append(
            {
                "job": job.token,
                "provider": job.provider,
                "noted": job.noted.isoformat(),
                "reserved": str(job.reserved),
                "lines": job.lines,
            }
        )

    def created(self, job: VendorJob, identity: str) -> VendorJob:
        """Note the id of a created job; return the job with it."""
        job = self._open[job.token] = replace(job, id=identity)
        self._append({"created": job.token, "id": identity})
        return job

    def close_job(self, job: VendorJob) -> None:
        """Note that all results of a job are written, or that it was never created."""
        del self._open[job.token]
        self._append({"done": job.token})
        if not self._open:  # what is left is of no use
            os.ftruncate(self._file.fileno(), 0)

    def close(self) -> None:
        """Close the log; remove it if no job is open."""
        self._file.close()
        if not self._open:
            self._path.unlink(missing_ok=True)

    def _append(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values).encode() + b"\n")
        os.fsync(self._file.fileno())

    def _read(self, content: bytes) -> None:
        for number, values in enumerate(_objects(content), 1):
            try:
                self._apply(values)
            except (KeyError, TypeError, ValueError):
                raise ConfigurationError(
                    f"line {number} of {self._path} is not of a log of batch jobs, so its jobs cannot be "
                    "found; move the file away to send all lines again"
                ) from None

    def _apply(self, values: Any) -> None:
        if "job" in values:
            lines: Sequence[Any] = values["lines"]
            named = tuple((int(number), str(kind), identity) for number, kind, identity in lines)
            at = datetime.fromisoformat(values["noted"]).astimezone(UTC)
            job = VendorJob(str(values["job"]), str(values["provider"]), named, at, _dollars(values))
            self._open[job.token] = job
        elif "created" in values:
            self._open[values["created"]] = replace(self._open[values["created"]], id=str(values["id"]))
        else:
            del self._open[values["done"]]


def _dollars(values: Any) -> Decimal:
    try:
        return Decimal(values["reserved"])
    except ArithmeticError:
        raise ValueError(values["reserved"]) from None


def _objects(content: bytes) -> Iterator[Any]:
    """Yield the complete lines; the last one may be cut short by a crash, before its step was taken."""
    for raw in content.split(b"\n")[:-1]:
        try:
            yield json.loads(raw)
        except (ValueError, RecursionError):
            yield None
