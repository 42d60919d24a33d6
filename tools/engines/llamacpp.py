"""llama.cpp's server, from the wheels of xllamacpp, which contain it whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from engines.checked_engine import BUILD, CONTEXT, DRAFT, ROOT, TARGET, Start

_ENVIRONMENT: Final = "llama.cpp"
_TOOLS: Final = ROOT / "tools" / "engines"
_FILES: Final = {TARGET: BUILD / _ENVIRONMENT / "target.gguf", DRAFT: BUILD / _ENVIRONMENT / "draft.gguf"}
_CONVERT_S: Final = 300.0


def server_command(*, draft: bool) -> Callable[[Start], list[str]]:
    """Return the start of the server with the bundled pair, or with its target alone."""

    def command(start: Start) -> list[str]:
        script = [str(start.binaries / "python"), str(_TOOLS / "llamacpp_server.py")]
        files = _FILES.values() if draft else [_FILES[TARGET]]
        return [*script, *map(str, (start.port, CONTEXT, *files))]

    return command


def write_pair(site: Path) -> None:
    """Write the bundled pair as GGUF files.

    Args:
        site: the environment's ``site-packages``.

    Raises:
        subprocess.CalledProcessError: a step failed.
    """
    convert = [str(site.parents[2] / "bin" / "python"), str(_TOOLS / "gguf_file.py")]
    for checkpoint, file in _FILES.items():
        command = [*convert, str(checkpoint), str(file)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_CONVERT_S)


INSTALLED: Final[Mapping[str, Any]] = {
    "package": "xllamacpp",
    "environment": _ENVIRONMENT,
    "provider": "llamacpp",
    "model": "target",
    "metrics": "llamacpp",
    # it closes the connection after a streamed answer, at times when the next call has been sent
    "retries": 1,
    "requirements": ("xllamacpp==2026.10.11549", "gguf"),
    "after_install": write_pair,
}
