"""From a configured model to the start of its server: the command that ``specclient local export`` prints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.export import SERVERS, Deployment, LaunchPlan, ServerSpec, launch, pair_deployment
from specclient_local.export.pair_deployment import SERVED_METHODS
from specclient_local.managed.engine_folder import EngineFolder
from specclient_local.managed.launch_spec import LaunchSpec
from specclient_local.managed.managed_models import ManagedModel

_PORT = 65_535
"""The port of the planned command, in whose place the supervisor puts a free one."""


def launch_spec(model: ManagedModel, folder: EngineFolder, *, fresh: bool = False) -> LaunchSpec:
    """Return what the supervisor of a model's server is told.

    Args:
        model: the model.
        folder: the server's files.
        fresh: whether earlier failures are forgotten.

    Raises:
        CheckpointError, ConfigurationError: the pair cannot be served as configured, or the server's program
            is not where the configuration says.
    """
    if model.command:
        return _of_command(model, folder, fresh=fresh)
    row = SERVERS[model.engine]
    plan = planned(model)
    program = row.program
    assert program is not None
    options = tuple(word for word in plan.command if word.startswith("--"))
    command = [*_with_placeholder(plan.command), *model.arguments]
    if program.key_option:
        command += [program.key_option, "{key}"]
    key = {program.key_variable: "{key}"} if program.key_variable else {}
    return LaunchSpec(
        folder=str(folder.path),
        name=model.name,
        engine=model.engine,
        title=row.title,
        served_name=model.served_name or plan.model or model.name,
        command=_installed(model, command),
        env={**key, **model.env},
        help=tuple(_installed(model, words) for words in program.help),
        version=_installed(model, program.version, needed=False),
        planned=tuple(name for name in options if name not in program.optional),
        optional=program.optional,
        telemetry_options=program.optional if row.name == "vllm" else (),
        keep_alive=model.keep_alive,
        start_s=model.start_s,
        fresh=fresh,
    )


def _of_command(model: ManagedModel, folder: EngineFolder, *, fresh: bool) -> LaunchSpec:
    """Return the start of a server with the user's own command."""
    words = [word.replace("{model}", model.pair.path) for word in model.command]
    program = words[0] if "/" in words[0] else shutil.which(words[0])
    if program is None or not os.access(program, os.X_OK):
        raise ConfigurationError(
            f"local model {model.name!r}: command begins with {words[0]!r}, which is not a program on PATH; "
            "write its path"
        )
    variable = model.kind.key_variable
    return LaunchSpec(
        folder=str(folder.path),
        name=model.name,
        engine=model.engine,
        title=model.kind.title,
        served_name=model.served_name,
        command=(program, *words[1:]),
        env={**({variable: "{key}"} if variable else {}), **model.env},
        keep_alive=model.keep_alive,
        start_s=model.start_s,
        fresh=fresh,
    )


def planned(model: ManagedModel) -> LaunchPlan:
    """Return the launch plan of a model without a command of its own.

    Raises:
        CheckpointError, ConfigurationError: the server cannot run the pair.
    """
    plan = launch(model.engine, deployment_of(model))
    if plan.before:
        raise ConfigurationError(
            f"local model {model.name!r}: {SERVERS[model.engine].title} reads GGUF files, and path is "
            f"{model.pair.path!r}; `specclient local export {model.name} --to {model.engine}` prints the "
            "commands that make them, then name the file in path (and in draft)"
        )
    return plan


def deployment_of(model: ManagedModel) -> Deployment:
    """Return the deployment of a model, as ``specclient local export NAME`` plans it.

    Raises:
        CheckpointError, ConfigurationError: see :func:`pair_deployment`.
    """
    pair = model.pair
    return pair_deployment(
        pair.path,
        method=SERVED_METHODS.get(pair.options.method, pair.options.method),
        drafts=pair.options.draft,
        heads=pair.options.heads,
        depth=pair.served_depth,
        context=pair.options.context,
        dtype=pair.stated_dtype,
        port=_PORT,
        name=model.served_name or model.name,
    )


def _with_placeholder(command: Sequence[str]) -> list[str]:
    """Return a command with a placeholder for its port."""
    before = ["", *command[:-1]]
    return ["{port}" if option == "--port" else word for option, word in zip(before, command, strict=True)]


def _installed(model: ManagedModel, command: Sequence[str], *, needed: bool = True) -> tuple[str, ...]:
    """Return a command whose first word is the path of an installed program.

    That is the one beside the configured interpreter, or the interpreter itself for ``python3``; without one,
    the program on ``PATH``.

    Raises:
        ConfigurationError: there is none, and it is needed.
    """
    if not command:
        return ()
    name, python = command[0], model.python
    row: ServerSpec = SERVERS[model.engine]
    if python is not None:
        found = python if name == "python3" else str(Path(python).with_name(name))
        missing = next((each for each in (python, found) if not os.access(each, os.X_OK)), None)
        problem = f"{missing!r} does not exist, or is not a program"
    else:
        found = shutil.which(name) or ""
        missing = None if found else name
        problem = f"{name!r} is not on PATH"
    if missing is not None and needed:
        raise ConfigurationError(
            f"local model {model.name!r}: {problem}; install {row.title} in an environment, and name its "
            'interpreter in python, such as python = "~/envs/server/bin/python"'
        )
    return (found, *command[1:]) if missing is None else ()
