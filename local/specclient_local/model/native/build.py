"""Compiles the C sources next to this file once per processor, and loads the library."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from specclient_local.model.native.library_cache import cache_folder, cached_library

_LOG = logging.getLogger("specclient")
_FOLDER = Path(__file__).parent
_SOURCES = (
    "matmul.h", "dot_products.h", "row_ops.h", "attention.h", "thread_team.h", "forward_pass.h", "pack.h",
    "entry_points.c",
)  # fmt: skip
_FLAGS = (
    *("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-ivopts"),
    *("-shared", "-fPIC", "-pthread"),
)
"""Without ``-fno-ivopts``, gcc reads each weight from memory once per row instead of once for 2 to 4 rows."""

_TUNED = ("-march=native", "-mcpu=native", "")
"""Flags for the machine's own processor, tried in order; the empty one compiles for any of its
architecture.
"""

_SECONDS = 120.0
"""Maximum time of a compilation."""


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None if there is no C compiler, or if ``SPECCLIENT_NATIVE`` is ``off``.

    The library is cached in the user's cache folder under a name that depends on sources, flags and
    processor; see :mod:`specclient_local.model.native.library_cache`. If the folder cannot be used, each
    process compiles its own copy and leaves nothing behind.
    """
    if os.environ.get("SPECCLIENT_NATIVE", "").lower() in ("off", "0", "false"):
        return None
    compiler = _compiler()
    if compiler is None or os.name == "nt":
        _LOG.info("no C compiler (cc, gcc or clang): the engine uses torch alone, which is slower")
        return None

    def build(target: Path) -> None:
        _compile(compiler, _FOLDER / "entry_points.c", target)

    try:
        name = _name(compiler)
        if (folder := cache_folder()) is not None:
            try:
                return cached_library(folder, name, build)
            except OSError as error:
                _LOG.info("the cache folder %s cannot be used (%s)", folder, error)
        # A loaded library does not need its file; network file systems may delete it only when it is closed.
        with tempfile.TemporaryDirectory(prefix="specclient-native-", ignore_cleanup_errors=True) as own:
            return cached_library(Path(own), name, build)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        _LOG.warning(
            "the engine's passes could not be compiled, so torch is used, which is slower: %s", reason
        )
        return None


def _compiler() -> list[str] | None:
    """Return the compiler's command: ``CC``, else the first of cc, gcc and clang that exists."""
    named = shlex.split(os.environ.get("CC", ""))
    if named and shutil.which(named[0]):
        return named
    return next(([found] for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _name(compiler: list[str]) -> str:
    """Return the library's file name, which depends on sources, compiler, flags and processor."""
    made_of = [(_FOLDER / name).read_text(encoding="utf-8") for name in _SOURCES]
    made_of += [*compiler, *_FLAGS, platform.machine(), _processor()]
    return f"pass-{hashlib.sha256('|'.join(made_of).encode()).hexdigest()[:24]}.so"


def _compile(compiler: list[str], source: Path, target: Path) -> None:
    """Compile for this machine's processor if the compiler supports that."""
    for tuned in _TUNED:
        command = [*compiler, *_FLAGS, *filter(None, (tuned,)), str(source), "-o", str(target), "-lm"]
        done = subprocess.run(  # noqa: S603 - the user's own compiler on our own source
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode == 0:
            return
    done.check_returncode()


def _processor() -> str:
    """Return a description of the processor, because machines of different kinds may share the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    fields = ("model name", "flags", "Features", "CPU part")
    return "|".join(sorted({line for line in lines if line.startswith(fields)}))
