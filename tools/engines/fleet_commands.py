"""The commands ``specclient fleet`` and ``specclient batch --on ray`` on a real Ray cluster of this machine.

A home folder of its own has the table of the documentation, with the bundled pair on two replicas.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engines.checked_engine import BUILD, ROOT

_COMMAND_S: Final = 1500.0
_LINES: Final = 48
_EXAMPLE: Final = re.compile(r"```toml\n(\[fleets\.pair\].*?)```", re.DOTALL)
_HOME: Final = BUILD / "fleet-home"
_OTHERS: Final = """
[fleets.away]
path = "bundled:target"
address = "ray://127.0.0.1:9"

[fleets.large]
path = "bundled:target"
memory = "20MiB"
python = "~/envs/vllm/bin/python"

[fleets.late]
path = "bundled:target"
start_s = 3
cpus = 0.1
python = "~/envs/vllm/bin/python"

[fleets.bare]
path = "bundled:target"
cpus = 0.1
python = "~/envs/bare/bin/python"
"""


class CommandError(AssertionError):
    """A command did something else than the documentation says."""


def check_commands(environment: Path) -> dict[str, Any]:
    """Run the commands, and return the seconds of each step.

    Args:
        environment: the folder of the environment with vLLM and Ray.

    Raises:
        CommandError: a step failed.
    """
    shutil.rmtree(_HOME, ignore_errors=True)
    (_HOME / "envs").mkdir(parents=True)
    (_HOME / "envs" / "vllm").symlink_to(environment)
    _without_vllm(environment, _HOME / "envs" / "bare")
    example = _EXAMPLE.search((ROOT / "docs" / "fleets.md").read_text(encoding="utf-8"))
    assert example is not None
    (_HOME / "specclient.toml").write_text(example.group(1) + _OTHERS, encoding="utf-8")
    steps: dict[str, float] = {}
    try:
        for step in _STEPS:
            begun_s = time.monotonic()
            step()
            steps[step.__name__.removeprefix("_")] = round(time.monotonic() - begun_s, 1)
            print(
                f"  {step.__name__.removeprefix('_')}: {steps[step.__name__.removeprefix('_')]} s", flush=True
            )
    finally:
        _specclient("fleet", "stop", "pair", "--force", expected=None)
    return {"steps": steps}


def _nothing_runs() -> None:
    """Before the first deployment: commands and calls say how a fleet is started."""
    _specclient("complete", "1", "-m", "pair/auto", expected=1, says="specclient fleet deploy pair")
    _specclient("fleet", "status", "pair", says="specclient fleet deploy pair")
    _specclient("fleet", "deploy", "away", expected=3, says="is away")
    _specclient("fleet", "deploy", "large", expected=3, says="cannot hold the model")
    _specclient("fleet", "stop", "pair", says="was not running")


def _deploy_without_vllm() -> None:
    _specclient("fleet", "deploy", "bare", expected=1, says="has no vLLM")
    _nothing_is_left()


def _deploy_that_gets_not_ready() -> None:
    _specclient("fleet", "deploy", "late", expected=1, says="not ready within 3 s")
    _nothing_is_left()


def _stop_a_killed_cluster() -> None:
    """The cluster is killed amid a deployment; ``stop`` works, and nothing is left."""
    with _process("fleet", "deploy", "pair") as deploying:
        while (pid := _cluster_pid()) is None:
            time.sleep(0.2)
        time.sleep(5)
        os.kill(pid, signal.SIGKILL)
        _specclient("fleet", "stop", "pair")
        deploying.wait(_COMMAND_S)
    _nothing_is_left()


def _deploy() -> None:
    _specclient("fleet", "deploy", "pair", says="pair/auto is served at")


def _complete() -> None:
    arguments = ("complete", "def fibonacci(n):", "--temperature", "0", "--max-tokens", "48")
    own = _specclient(*arguments, "-m", "local/demo")
    fleet = _specclient(*arguments, "-m", "pair/auto")
    if own != fleet:
        raise CommandError(f"the fleet completes {fleet!r}, the own engine {own!r}")


def _refuse_a_second_fleet_of_the_name() -> None:
    _specclient("fleet", "deploy", "pair", expected=1, says="of the name 'pair' already")


def _batch() -> None:
    """A batch on Ray Data has the records of a batch from here, and sends no line twice."""
    lines = [
        {"id": f"line-{i}", "prompt": f"def function_{i}(values):\n", "max_tokens": 24, "temperature": 0}
        for i in range(_LINES)
    ]
    (_HOME / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    _specclient("batch", "in.jsonl", "here.jsonl", "-m", "pair/plain", "--concurrency", "16")
    half = "".join(json.dumps(line) + "\n" for line in lines[: _LINES // 2])
    (_HOME / "half.jsonl").write_text(half, encoding="utf-8")
    on_ray = ("ray.jsonl", "--on", "ray", "-m", "pair/plain")
    _specclient("batch", "half.jsonl", *on_ray, says=f"{_LINES // 2} answered · 0 failed")
    says = f"{_LINES // 2} answered · 0 failed · {_LINES // 2} done before"
    _specclient("batch", "in.jsonl", *on_ray, says=says)
    here, ray = (
        sorted((_HOME / name).read_text(encoding="utf-8").splitlines())
        for name in ("here.jsonl", "ray.jsonl")
    )
    if here != ray:
        raise CommandError("the records of the batch on Ray are others")


def _stop() -> None:
    _specclient("fleet", "stop", "pair", says="has been stopped")
    _nothing_is_left()


_STEPS: Final[tuple[Callable[[], None], ...]] = (
    _nothing_runs, _deploy, _complete, _refuse_a_second_fleet_of_the_name, _batch, _stop,
    _deploy_without_vllm, _deploy_that_gets_not_ready, _stop_a_killed_cluster,
)  # fmt: skip


def _specclient(*arguments: str, expected: int | None = 0, says: str = "") -> str:
    """Run a command in the home folder, and return its output.

    Raises:
        CommandError: its status is another one, or its output lacks the words.
    """
    with _process(*arguments) as process:
        output, errors = process.communicate(timeout=_COMMAND_S)
    if expected is not None and (process.returncode != expected or says not in output + errors):
        wanted = f"{expected} and {says!r}"
        raise CommandError(
            f"specclient {' '.join(arguments)}: status {process.returncode} where {wanted} was expected: "
            f"{output[-300:]} {errors[-600:]}"
        )
    return output


def _process(*arguments: str) -> subprocess.Popen[str]:
    code = "from specclient_cli.main import main; main()"
    environment = {
        "HOME": str(_HOME),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_HOME,
        env=environment,
    )


def _cluster_pid() -> int | None:
    """Return the first process of the local cluster; None while there is none."""
    state = _HOME / ".local" / "share" / "specclient" / "fleets" / "state"
    try:
        pid: int = json.loads(state.read_text(encoding="utf-8"))["pid"]
    except (OSError, ValueError):
        return None
    return pid


def _nothing_is_left() -> None:
    """Check that no process of the local cluster runs."""
    mark, end_s = str(_HOME / "envs").encode(), time.monotonic() + 30
    while time.monotonic() < end_s:
        left = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes()
            except OSError:
                continue
            if mark in words:
                left.append(words)
        if not left:
            return
        time.sleep(1)
    raise CommandError(f"{len(left)} processes of the cluster are left: {left[0][:200]!r}")


def _without_vllm(environment: Path, folder: Path) -> None:
    """Make an environment with all packages of another one but vLLM, as links."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [own] = folder.glob("lib/python*/site-packages")
    [other] = environment.resolve().glob("lib/python*/site-packages")
    for each in other.iterdir():
        if not each.name.startswith("vllm"):
            (own / each.name).symlink_to(each)
