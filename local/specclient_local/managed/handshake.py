"""Which options of a planned command the installed program has, by its ``--help``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from specclient_local.managed.launch_spec import LaunchSpec
from specclient_local.managed.server_log import advice_of, telling_lines

HELP_S = 300.0
"""Seconds that a program may take to print its options: it may import torch from a slow disk."""

_OPTION = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")


class UnsuitableServerError(Exception):
    """The installed program cannot be run, or lacks an option; the message says which and what to do."""


def checked_command(spec: LaunchSpec, env: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command without optional options that the program lacks, and those options.

    Args:
        env: the environment of the program.

    Raises:
        UnsuitableServerError: the program cannot be run, or lacks an option that the command needs.
    """
    if not spec.help:
        return spec.command, ()
    known = _options_of(spec, env)
    if "--port" not in known:  # a help text in a form that this does not know
        return spec.command, ()
    missing = [name for name in spec.planned if name not in known]
    if missing:
        raise UnsuitableServerError(
            f"{_version(spec, env)} at {spec.command[0]} has no option {', '.join(missing)}, which "
            f"local/{spec.name} needs; install a newer version there, name another environment in python, or "
            "change the model's table"
        )
    dropped = tuple(name for name in spec.optional if name not in known and name in spec.command)
    return without_options(spec.command, dropped), dropped


def without_options(command: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return a command without some options and their values."""
    kept: list[str] = []
    skipping = False
    for word in command:
        if word.startswith("--"):
            skipping = word in names
        if not skipping:
            kept.append(word)
    return tuple(kept)


def _options_of(spec: LaunchSpec, env: Mapping[str, str]) -> set[str]:
    """Return the options in the program's help; with underscores for hyphens they are the same."""
    outputs: list[str] = []
    for words in spec.help:
        done = _run(words, env)
        outputs.append(f"{done.stdout}\n{done.stderr}")
        if done.returncode == 0:
            return {name.replace("_", "-") for name in _OPTION.findall(outputs[-1])}
    lines = [" ".join(line.split()) for line in outputs[-1].splitlines() if line.strip()]
    advice = advice_of(lines) or "reinstall the server there, or name another environment in python"
    raise UnsuitableServerError(
        f"`{' '.join(spec.help[-1])}` failed: {' | '.join(telling_lines(lines))}; {advice}"
    )


def _version(spec: LaunchSpec, env: Mapping[str, str]) -> str:
    """Return the server's name with its version, if it states one."""
    if spec.version:
        try:
            done = _run(spec.version, env)
        except UnsuitableServerError:
            return spec.title
        lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
        numbered = [line.strip() for line in lines if re.search(r"\d", line)]
        if done.returncode == 0 and numbered:
            return f"{spec.title} {numbered[-1][:80]}"
    return spec.title


def _run(words: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the user's own program
            list(words),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=HELP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnsuitableServerError(f"`{' '.join(words)}` did not end within {HELP_S:g} s") from None
    except OSError as error:
        raise UnsuitableServerError(f"{words[0]} cannot be run: {error.strerror or error}") from None
