"""The cache of the compiled library: damaged, foreign or unsafe files are never loaded."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from specclient_local.model.native import build
from specclient_local.model.native.library_cache import DIGEST_SUFFIX, cached_library

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

LOAD = "from specclient_local.model.native.build import library; print(library()._name)"
SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture
def load(tmp_path: Path):
    """Return a function that loads the engine's library in a new process with an empty cache folder."""
    fast = tmp_path / "cc"
    fast.write_text(f'#!/bin/sh\nexec {shlex.join(build._compiler() or [])} "$@" -O0\n')
    fast.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "CC": str(fast)}

    def run() -> Path:
        done = subprocess.run(
            [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr}"
        return Path(done.stdout.strip())

    return run


def test_a_truncated_library_is_compiled_again_instead_of_ending_the_process(load) -> None:
    """dlopen() of a truncated library raises SIGBUS, in every process that uses the folder."""
    path = load()
    whole = path.stat().st_size
    for share in (0.25, 0.5):
        os.truncate(path, int(whole * share))
        assert load() == path
        assert path.stat().st_size == whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "native"
    made.mkdir(mode=0o700)
    return made


class Builds:
    """Compiles a small library and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, target: Path) -> None:
        self.count += 1
        source = target.with_suffix(".c")
        source.write_text(SOURCE)
        command = [*(build._compiler() or []), "-shared", "-fPIC", str(source), "-o", str(target)]
        subprocess.run(command, check=True)


def load_small(folder: Path, builds: Builds) -> None:
    assert cached_library(folder, "small.so", builds).answer() == 42


def test_a_whole_library_is_compiled_once(folder: Path) -> None:
    builds = Builds()
    for _ in range(3):
        load_small(folder, builds)
    assert builds.count == 1
    assert sorted(path.name for path in folder.iterdir()) == ["small.so", "small.so" + DIGEST_SUFFIX]
    digest = (folder / f"small.so{DIGEST_SUFFIX}").read_text().strip()
    assert digest == hashlib.sha256((folder / "small.so").read_bytes()).hexdigest()


def one_byte_changed(library: Path, digest: Path) -> None:
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.unlink()  # this process has it loaded
    library.write_bytes(data)


def empty(library: Path, digest: Path) -> None:
    library.unlink()
    library.write_bytes(b"")


def without_digest(library: Path, digest: Path) -> None:
    digest.unlink()


def wrong_digest(library: Path, digest: Path) -> None:
    digest.write_text("0" * 64)


def empty_digest(library: Path, digest: Path) -> None:
    digest.write_bytes(b"")


def writable_for_others(library: Path, digest: Path) -> None:
    library.chmod(0o722)


def digest_writable_for_the_group(library: Path, digest: Path) -> None:
    digest.chmod(0o620)


def a_link(library: Path, digest: Path) -> None:
    elsewhere = library.with_name("elsewhere")
    library.rename(elsewhere)
    library.symlink_to(elsewhere)


def a_fifo(library: Path, digest: Path) -> None:
    library.unlink()
    os.mkfifo(library, 0o600)


def a_digest_that_is_a_fifo(library: Path, digest: Path) -> None:
    digest.unlink()
    os.mkfifo(digest, 0o600)


@pytest.mark.parametrize(
    "damage",
    [
        one_byte_changed,
        empty,
        without_digest,
        wrong_digest,
        empty_digest,
        writable_for_others,
        digest_writable_for_the_group,
        a_link,
        a_fifo,
        a_digest_that_is_a_fifo,
    ],
)
def test_a_library_that_is_not_whole_and_private_is_compiled_again(folder: Path, damage) -> None:
    builds = Builds()
    load_small(folder, builds)
    library = folder / "small.so"
    damage(library, folder / f"small.so{DIGEST_SUFFIX}")
    load_small(folder, builds)
    assert builds.count == 2
    status = library.lstat()
    assert stat.S_ISREG(status.st_mode)
    assert status.st_mode & 0o022 == 0
    load_small(folder, builds)
    assert builds.count == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["small.so", f"small.so{DIGEST_SUFFIX}"])
def test_a_file_of_another_user_is_not_loaded(folder: Path, name: str) -> None:
    builds = Builds()
    load_small(folder, builds)
    os.chown(folder / name, 65534, 65534)
    load_small(folder, builds)
    assert builds.count == 2
    assert (folder / name).stat().st_uid == os.getuid()


def test_a_library_is_private_whatever_the_umask(folder: Path) -> None:
    builds, before = Builds(), os.umask(0)
    try:
        load_small(folder, builds)
    finally:
        os.umask(before)
    load_small(folder, builds)
    assert builds.count == 1


def test_a_build_that_fails_leaves_nothing(folder: Path) -> None:
    def fail(target: Path) -> None:
        target.write_bytes(b"half")
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        cached_library(folder, "small.so", fail)
    assert list(folder.iterdir()) == []
