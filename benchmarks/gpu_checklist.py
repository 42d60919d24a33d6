"""Check what a CUDA device does with the engine, before its speed is measured.

    python benchmarks/gpu_checklist.py [--only environment,alignment,…] [--tiny] [--out FOLDER] [--limit 90]

Every check is a process of its own with a time limit: an error that ends a process's use of the device ends
that check alone. Results are written to ``gpu_checklist.json`` in the folder after every check; checks that
have a result there are skipped with ``--resume``. ``--tiny`` runs everything with a small shape on the CPU.
``gpu_layer_checks``, ``gpu_pages`` and ``gpu_round_checks`` have the checks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Check = Callable[[bool], dict[str, Any]]

_MARK = "RESULT "
LIMIT_S = 90.0
"""Seconds that one check may take."""


def checks() -> dict[str, Check]:
    """Return all checks by name, in order of what the others depend on."""
    import gpu_layer_checks as layers  # noqa: PLC0415 - imports torch, which the parent process does not need
    import gpu_pages  # noqa: PLC0415
    import gpu_round_checks as rounds  # noqa: PLC0415

    return {
        "environment": layers.environment,
        "alignment": layers.alignment,
        "operations": layers.operations,
        "attention": layers.attention,
        "pages": gpu_pages.pages,
        "products": layers.products,
        "quantised": layers.quantised,
        "prefill": rounds.prefill,
        "recordings": rounds.recordings,
        "gaps": rounds.gaps,
        "ahead": rounds.ahead,
        "sampling": rounds.sampling,
        "identity": rounds.identity,
        "profile": rounds.profile,
        "two_engines": rounds.two_engines,
        "bundled": rounds.bundled,
    }


NAMES = (
    "environment",
    "alignment",
    "operations",
    "attention",
    "pages",
    "products",
    "quantised",
    "prefill",
    "recordings",
    "gaps",
    "ahead",
    "sampling",
    "identity",
    "profile",
    "two_engines",
    "bundled",
)


def run_check(name: str, *, tiny: bool, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Run one check in a process of its own.

    Returns:
        Its result, or ``{"failed": reason}``; with the ``seconds`` that it took.
    """
    command = [sys.executable, __file__, "--one", name, *(["--tiny"] if tiny else [])]
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {limit_s:.0f} s", "seconds": round(limit_s, 1)}
    lines = [line[len(_MARK) :] for line in done.stdout.splitlines() if line.startswith(_MARK)]
    errors = " | ".join(done.stderr.strip().splitlines()[-4:])[-600:]
    result = json.loads(lines[-1]) if lines else {"failed": f"exit status {done.returncode}: {errors}"}
    return {**result, "seconds": round(time.monotonic() - begun, 1)}


def run_checklist(
    names: Sequence[str], folder: Path, *, tiny: bool, limit_s: float = LIMIT_S, resume: bool = False
) -> dict[str, Any]:
    """Run checks one after the other; write their results to ``gpu_checklist.json`` after each."""
    file = folder / "gpu_checklist.json"
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if resume and "failed" not in results.get(name, {"failed": ""}):
            continue
        results[name] = run_check(name, tiny=tiny, limit_s=limit_s)
        print(f"== {name}: {json.dumps(results[name])}", flush=True)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(NAMES), help="checks to run, separated by commas")
    parser.add_argument("--tiny", action="store_true", help="use a small shape on the CPU")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that one check may take")
    parser.add_argument("--resume", action="store_true", help="skip checks that have a result already")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="folder of results"
    )
    parser.add_argument("--one", help="run one check in this process, and print its result")
    args = parser.parse_args(arguments)
    if args.one:
        print(_MARK + json.dumps(checks()[args.one](args.tiny), default=str))
        return
    names = args.only.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"unknown --only {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    run_checklist(names, args.out, tiny=args.tiny, limit_s=args.limit, resume=args.resume)


if __name__ == "__main__":
    main()
