"""Products compiled for Arm processors, by an emulator: as exact as on this machine, in any batch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from specclient_local.model.native import build as build

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64")
FLAGS = [*(flag for flag in build._FLAGS if flag not in ("-shared", "-fPIC")), "-O1"]  # compiles faster

pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER) is None or EMULATOR is None or build._compiler() is None,
    reason="needs gcc-aarch64-linux-gnu and qemu-user",
)


def products(folder, compiler, *flags, emulator=()):
    """Return pairs of computed and exact products; the program fails if a row's bits depend on the batch."""
    program = folder / "products"
    sources = [f"-I{Path(build.__file__).parent}", str(Path(__file__).with_name("products.c"))]
    subprocess.run([*compiler, *FLAGS, *flags, *sources, "-o", str(program), "-lm"], check=True)
    done = subprocess.run([*emulator, str(program)], check=True, capture_output=True, text=True)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return products(tmp_path_factory.mktemp("own"), build._compiler(), "-march=native")


@pytest.mark.parametrize("processor", ["armv8-a", "armv8.2-a+dotprod", "armv8.6-a+i8mm"])
def test_products_on_arm_equal_those_of_this_machine(tmp_path, own, processor):
    emulator = [str(EMULATOR), "-cpu", "max"]
    found = products(tmp_path, [COMPILER], f"-march={processor}", "-static", emulator=emulator)
    assert len(found) == len(own) > 4000
    for (computed, _), (expected, exact) in zip(found, own, strict=True):
        assert computed == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert computed == pytest.approx(exact, abs=1.0), "rounded to 4 or 8 bits"
