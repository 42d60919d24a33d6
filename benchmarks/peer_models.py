"""The models of ``sizes.py`` in the formats of other engines, and the commands that measure these.

Each engine is in a folder of its own below ``build/engines``, where ``make engines`` and ``make peers``
install them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sizes_peers import ENGINES
from specclient_local.api.backend import BUNDLED

GGUF_KINDS = ("BF16", "Q8_0", "Q4_0")
OPENVINO_KINDS = ("fp16", "int8", "int4")


def peer_commands(
    names: list[str], environments: Path, folder: Path, *, kept: Path, arguments: list[str]
) -> dict[str, list[str]]:
    """Write the models for the named engines, and return the commands that measure them.

    Args:
        names: of :data:`sizes_peers.ENGINES`.
        environments: the folder of their environments.
        folder: the target's checkpoint.
        kept: folder to which models are written that are not there yet.
        arguments: the file of prompts and what follows it.

    Raises:
        FileNotFoundError: an engine is not installed.
    """
    commands: dict[str, list[str]] = {}
    for name in names:
        interpreter = environments / name / "bin" / "python"
        if not interpreter.exists():
            raise FileNotFoundError(
                f"{name} is not in {environments}; install it by `make engines` or `make peers`"
            )
        for kind, target, draft in _MODELS[name](interpreter, folder, kept):
            title = f"{name} {kind}"
            script = str(Path(__file__).with_name("sizes_peers.py"))
            commands[title] = [*(str(interpreter), script, name, title, str(target), str(draft), *arguments)]
    return commands


def _gguf(interpreter: Path, folder: Path, kept: Path) -> list[tuple[str, Path, Path]]:  # noqa: ARG001
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "kits"))
    from gguf_files import write_gguf  # noqa: PLC0415 - needs the package gguf

    files: dict[tuple[str, str], Path] = {}
    for name, source in ((folder.name, folder), ("draft", BUNDLED / "draft")):
        for kind in GGUF_KINDS if source == folder else GGUF_KINDS[:1]:
            file = files[name, kind] = kept / f"{name}-{kind}.gguf"
            if not file.exists():
                copied = shutil.copytree(source, kept / f"{name}-{kind}")  # its weights are replaced
                write_gguf(copied, file, kind)
                shutil.rmtree(copied)
    return [(kind, files[folder.name, kind], files["draft", "BF16"]) for kind in GGUF_KINDS]


def _openvino(interpreter: Path, folder: Path, kept: Path) -> list[tuple[str, Path, Path]]:
    def exported(source: Path, kind: str) -> Path:
        out = kept / f"{source.name}-openvino-{kind}"
        if not out.exists():
            command = [interpreter.with_name("optimum-cli"), "export", "openvino", "--model", source]
            more = ["--task", "text-generation-with-past", "--weight-format", kind, out]
            offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
            subprocess.run([*command, *more], check=True, env=offline, stdout=subprocess.DEVNULL)
        return out

    draft = exported(BUNDLED / "draft", "fp16")
    return [(kind, exported(folder, kind), draft) for kind in OPENVINO_KINDS]


def _vllm(interpreter: Path, folder: Path, kept: Path) -> list[tuple[str, Path, Path]]:  # noqa: ARG001
    return [("bfloat16", folder, BUNDLED / "draft")]


_MODELS = {"llama.cpp": _gguf, "openvino": _openvino, "vllm": _vllm}
assert _MODELS.keys() == ENGINES.keys()


def write_prompts(file: Path, prompts: list[list[int]], long: list[int]) -> None:
    """Write the file of prompts that ``sizes_peers.py`` reads."""
    file.write_text(json.dumps([*prompts, long]))
