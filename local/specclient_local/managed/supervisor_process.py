"""The process of a supervisor: started by a program that needs a server, and independent of it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from specclient import errors
from specclient.errors import EngineError
from specclient_local.managed.engine_folder import EngineFolder, locked_soon, opened_lock
from specclient_local.managed.launch_spec import LaunchSpec
from specclient_local.managed.process_tree import adopt_orphans, kill_below
from specclient_local.managed.supervisor import Supervisor

_LAUNCH_S = 60.0
_STARTED = b"started"
_OUTPUT = "supervisor.log"
_PROGRAM = (
    "import sys; sys.path[:0] = [each for each in sys.argv[1:] if each not in sys.path]; "
    "from specclient_local.managed.supervisor_process import main; main()"
)


def start_supervisor(spec: LaunchSpec) -> None:
    """Start the supervisor of a server, and return once it holds its lock and has written its state.

    Raises:
        EngineError: it did not start; the message has the last line of its output.
    """
    paths = [str(Path(errors.__file__).parents[1]), str(Path(__file__).parents[2])]  # of both packages
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _PROGRAM, *paths],
            input=spec.to_json().encode(),
            capture_output=True,
            cwd=spec.folder,
            timeout=_LAUNCH_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the supervisor of local/{spec.name} cannot be started: {error}") from None
    if done.stdout != _STARTED:
        output = Path(spec.folder) / _OUTPUT
        written = output.read_text("utf-8", "replace") if output.exists() else ""
        lines = f"{written}\n{done.stderr.decode('utf-8', 'replace')}".strip().splitlines()
        last = lines[-1] if lines else f"it ended with status {done.returncode}"
        raise EngineError(f"the supervisor of local/{spec.name} cannot be started: {last}")


def main() -> None:
    """Read a specification from the input, and run the supervisor in a process that outlives its parent."""
    spec = LaunchSpec.from_json(sys.stdin.read())
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.write(sys.stdout.fileno(), os.read(told, len(_STARTED)))
        os._exit(0)
    os.close(told)

    def started() -> None:
        os.write(tell, _STARTED)
        os.close(tell)

    _detach(Path(spec.folder) / _OUTPUT)
    _run(spec, started)


def _detach(output: Path) -> None:
    """Leave the session of the parent, its input and its outputs."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for own, other in ((0, null), (1, null), (2, errors)):
        os.dup2(other, own)
    os.close(null)
    os.close(errors)


def _run(spec: LaunchSpec, started: Callable[[], None]) -> NoReturn:
    """Run the supervisor until its server has ended.

    Args:
        started: called once the state has been written.
    """
    folder = EngineFolder(Path(spec.folder))
    with opened_lock(folder.alive) as alive:
        if not locked_soon(alive):
            sys.exit("another supervisor of this server runs")
        adopt_orphans()
        supervisor = Supervisor(spec, folder)
        started()
        try:
            supervisor.run()
        except Exception as error:
            supervisor.end("failed", f"its supervisor failed: {type(error).__name__}: {error}")
            raise
        finally:
            kill_below(os.getpid())
    sys.exit(0)
