"""Commands in a pseudo-terminal of a given size, and the resulting screen content."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable

from forked_program import COMMAND, ForkedProgram

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\r|\n|\x1b\][^\x07]*\x07|[^\x1b\r\n]+")


class Terminal:
    """Runs ``specclient`` in a pseudo-terminal; :meth:`type` sends keyboard input.

    Args:
        arguments: arguments of the command.
        width: columns of the terminal.
        height: rows of the terminal.
        environment: environment variables added for the command.
    """

    def __init__(self, *arguments: str, width: int = 80, height: int = 24, **environment: str) -> None:
        self.width = width
        self.output = ""
        self._fd, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.process = ForkedProgram(
            [*COMMAND, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        os.close(terminal)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, wanted: str | Callable[[str], bool], timeout: float = 120.0) -> str:
        """Read until the output contains a text or satisfies a predicate; return the output so far.

        Fails after ``timeout`` seconds, or if the command ends before.
        """
        seen = wanted if callable(wanted) else lambda output: wanted in output
        deadline = time.monotonic() + timeout
        while not seen(self.output):
            assert time.monotonic() < deadline, self.output
            if not self._read():
                raise AssertionError(f"ended before {wanted!r}: {self.output}")
        return self.output

    def wait(self) -> int:
        """Read the output to its end and return the exit code."""
        while self._read():
            pass
        os.close(self._fd)
        return self.process.wait()

    def interrupt(self) -> int:
        """Send Ctrl-C repeatedly until the command ends, and return its exit code.

        It is repeated because a signal that arrives between readline's prompt and its wait for a key is
        noticed only with the next key (CPython's ``readline_until_enter_or_signal``).
        """
        while self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            heard_by = time.monotonic() + 5.0
            while self.process.poll() is None and time.monotonic() < heard_by:
                if select.select([self._fd], [], [], 0.1)[0]:
                    self._read()
        return self.wait()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # how Linux reports the end of a terminal
            return False
        self.output += data.decode("utf-8", "replace")
        return bool(data)


def replay(output: str, width: int) -> list[str]:
    """Return the lines of the screen after an output.

    Only the control sequences used by the command are supported: cursor up, erase line, carriage return.
    """
    lines, row, column = [""], 0, 0
    for match in _CONTROL.finditer(output):
        argument, code = match.group(1), match.group(2)
        token = match.group(0)
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif code == "A":
            row = max(row - int(argument or 1), 0)
        elif code == "K":
            lines[row] = "" if argument == "2" else lines[row][:column]
        elif code is None and not token.startswith("\x1b"):
            for character in token:
                if column == width:
                    row, column = row + 1, 0
                    lines.extend([""] * (row + 1 - len(lines)))
                line = lines[row].ljust(column)
                lines[row] = line[:column] + character + line[column + 1 :]
                column += 1
    return [line.rstrip() for line in lines]
