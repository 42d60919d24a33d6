"""A small disk that tests can fill: a tmpfs in a mount namespace of its own.

Programs that run behind :attr:`FullDisk.prefix` find it at :attr:`FullDisk.path`. This process reaches its
files at :attr:`FullDisk.outside`, where SQLite must not open them: it would put its auxiliary files at the
same path of another disk, which this process sees there.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

_MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$0" && echo ready && exec cat'
_QUERY = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=10)
print(json.dumps(database.execute(sys.argv[2]).fetchall()))
"""


class FullDisk:
    """The disk as a context manager; skips the test where namespaces cannot be made.

    Args:
        path: the mount point, an existing folder.
        size: in the notation of ``mount``.
    """

    def __init__(self, path: Path, size: str = "3m") -> None:
        self.path, self._size = path, size

    def __enter__(self) -> Self:
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            pytest.skip("no unshare and nsenter are installed (util-linux)")
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", _MOUNT, str(self.path), self._size],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            reason = self._holder.communicate()[1].strip()
            pytest.skip(f"a tmpfs cannot be mounted in a namespace here: {reason}")
        pid = str(self._holder.pid)
        self.prefix = ("nsenter", "--preserve-credentials", "-U", "-m", "-t", pid, f"--wd={self.path}")
        self.outside = Path(f"/proc/{pid}/root{self.path}")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()  # the end of its input ends it

    def fill(self, but: int = 0) -> None:
        """Fill the disk.

        Args:
            but: bytes that stay free, rounded down to pages.
        """
        with (self.outside / "ballast").open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            ballast.truncate(max(ballast.tell() - but, 0))

    def make_room(self) -> None:
        """Remove what :meth:`fill` wrote."""
        (self.outside / "ballast").unlink()

    def query(self, database: str, sql: str) -> list[list[Any]]:
        """Return the rows of a statement on an SQLite database of the disk."""
        command = [*self.prefix, sys.executable, "-I", "-S", "-c", _QUERY, str(self.path / database), sql]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        rows: list[list[Any]] = json.loads(done.stdout)
        return rows
