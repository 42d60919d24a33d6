"""Turn the C sources beside this file into a loaded library, compiled once for this processor."""

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

_LOG = logging.getLogger("specclient")
_SOURCES = ("kernels.h", "pass.c")
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC", "-pthread")
_TUNED = ("-march=native", "-mcpu=native", "")
"""What compilers call the machine's own processor; the last one is any of its kind."""

_SECONDS = 120.0


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled passes; None where there is no C compiler, or ``SPECCLIENT_NATIVE`` is ``off``.

    The library is kept in the user's cache folder, under a name made of everything that went into it.
    """
    if os.environ.get("SPECCLIENT_NATIVE", "").lower() in ("off", "0", "false"):
        return None
    compiler = _compiler()
    if compiler is None or os.name == "nt":
        _LOG.info("no C compiler (cc, gcc or clang): the engine computes by torch alone, more slowly")
        return None
    try:
        path = _built(compiler)
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # cut short, or not of this system
            path.unlink()
            return ctypes.CDLL(str(_built(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        _LOG.warning("the engine's passes could not be compiled, so torch computes, more slowly: %s", said)
        return None


def _compiler() -> list[str] | None:
    """Return the command of the compiler: ``CC``, else the first there is."""
    named = shlex.split(os.environ.get("CC", ""))
    if named and shutil.which(named[0]):
        return named
    return next(([found] for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _built(compiler: list[str]) -> Path:
    """Return the library's path, compiled unless it is there."""
    folder = Path(__file__).parent
    made_of = [(folder / name).read_text(encoding="utf-8") for name in _SOURCES]
    made_of += [*compiler, *_FLAGS, platform.machine(), _processor()]
    path = _folder() / f"pass-{hashlib.sha256('|'.join(made_of).encode()).hexdigest()[:24]}.so"
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        new = Path(scratch) / path.name
        _compile(compiler, folder / "pass.c", new)
        new.replace(path)  # whole or not at all, however many processes do this at once
    return path


def _compile(compiler: list[str], source: Path, target: Path) -> None:
    """Compile for this very processor where the compiler knows how."""
    for tuned in _TUNED:
        command = [*compiler, *_FLAGS, *filter(None, (tuned,)), str(source), "-o", str(target), "-lm"]
        done = subprocess.run(  # noqa: S603 - the user's own compiler on our own source
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode == 0:
            return
    done.check_returncode()


def _folder() -> Path:
    """Return a folder that nobody else writes to: what lies there is loaded into the process."""
    from platformdirs import user_cache_path  # noqa: PLC0415 - where an engine is loaded alone

    wanted = user_cache_path("specclient", appauthor=False) / "native"
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        if wanted.stat().st_uid == os.getuid() and os.access(wanted, os.W_OK):
            return wanted
    except OSError:
        pass
    return _own_folder()


@cache
def _own_folder() -> Path:
    """Return a folder for this process alone; the system's cleaning of temporary files removes it."""
    return Path(tempfile.mkdtemp(prefix="specclient-native-"))


def _processor() -> str:
    """Return what tells this processor from others that share the user's folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    told = ("model name", "flags", "Features", "CPU part")
    return "|".join(sorted({line for line in lines if line.startswith(told)}))
