"""Runs of the scripts: one process for each library and way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from libraries.catalogue import CheckedLibrary
from libraries.environments import BUILD, ROOT, python, versions
from libraries.servers import MODELS, RunningServers

WAYS: Final = ("object", "transport", "server", "plain")
CHECKS: Final = ("whole", "streamed", "tool", "structured")
_PROCESS_S: Final = 1800.0
_SCRIPTS: Final = ROOT / "tools" / "libraries" / "scripts"


@dataclass(frozen=True)
class CheckResult:
    """One check of one library; ``error`` is None if it passed."""

    way: str
    server: str
    check: str
    error: str | None


def run_library(
    library: CheckedLibrary, servers: RunningServers, ways: Sequence[str], earlier: dict[str, Any]
) -> dict[str, Any]:
    """Run the checks of a library, and return its entry for the table.

    The plain official client is run only if a check at the canned server failed, to see whether it fails,
    too.

    Args:
        library: what is checked.
        servers: where its requests go.
        ways: the ways that are run, of :data:`WAYS`.
        earlier: the library's last entry, whose results of the other ways are kept if the versions are the
            same; otherwise all ways are run.

    Returns:
        ``versions`` by package name, and ``results``, a list of the fields of :class:`CheckResult`.
    """
    installed = versions(library)
    same = earlier.get("versions") == installed
    results: list[CheckResult] = []
    for way in WAYS:
        if library.node and way not in ("server", "plain"):
            continue
        if way == "plain" and not any(result.error and result.server == "canned" for result in results):
            continue
        if same and way not in ways and way != "plain":
            results += [CheckResult(**row) for row in earlier["results"] if row["way"] == way]
        else:
            results += _run_way(library, way, servers)
    return {"versions": installed, "results": [vars(result) for result in results]}


def _run_way(library: CheckedLibrary, way: str, servers: RunningServers) -> list[CheckResult]:
    models = {name: MODELS[name] for name in MODELS if not (way == "plain" and name == "demo")}
    environment = dict(servers.environment)
    if way in ("server", "plain"):
        environment["OPENAI_BASE_URL"] = servers.served_url if way == "server" else servers.canned_url
    command = _command(library)
    log = BUILD / library.name / f"{way}.log"
    with log.open("w", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                [*command, way, json.dumps(models)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                timeout=_PROCESS_S,
                check=False,
                cwd=BUILD / library.name,
            )
            printed, end = done.stdout, f"the process ended with status {done.returncode}; see {log.name}"
        except subprocess.TimeoutExpired as error:
            raw = error.stdout or b""
            printed = raw if isinstance(raw, str) else raw.decode()
            end = f"the process took more than {_PROCESS_S:.0f} s"
    found = {(row["server"], row["check"]): row["error"] for row in _lines(printed)}
    if len(found) < len(models) * len(CHECKS):
        sys.stderr.write(f"{library.name} {way}: {end}\n{_tail(log.read_text(encoding='utf-8'))}\n")
    return [
        CheckResult(way, server, check, found.get((server, check), end))
        for server in models
        for check in CHECKS
    ]


def _command(library: CheckedLibrary) -> list[str]:
    """Return the command of a library's script. Node.js finds packages from where a script is."""
    if not library.node:
        return [str(python(library)), str(_SCRIPTS / library.script)]
    for name in (library.script, "checks.mjs"):
        shutil.copy(_SCRIPTS / name, BUILD / library.name)
    return ["node", str(BUILD / library.name / library.script)]


def _lines(printed: str) -> list[dict[str, Any]]:
    """Return the results among the lines; a library may print others."""
    decoder = json.JSONDecoder()  # ignores what a library prints after the result
    rows = [decoder.raw_decode(line)[0] for line in printed.splitlines() if line.startswith('{"server": ')]
    return [row for row in rows if {"server", "check", "error"} <= row.keys()]


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-5:])
