"""llama.cpp: GGUF files, and ``llama-server`` with its ``--spec-…`` options, as renamed in April 2026."""

from __future__ import annotations

from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerProgram,
    ServerSpec,
    base_url_of,
    command_options,
    foreign_heads,
)

_DOCS = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
_OUTTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_NGRAM = 4
"""Length of the n-gram whose earlier occurrence gives a draft. N-grams of the default length, 12, rarely
recur.
"""


def _launch(deployment: Deployment, port: int) -> LaunchPlan:
    prepared: list[tuple[str, ...]] = []
    target, source = _gguf(deployment.target, deployment, prepared)
    words = command_options(
        ("--model", target),
        ("--alias", deployment.served),
        ("--host", deployment.host),
        ("--port", port),
        ("--ctx-size", deployment.context),
        *_devices(deployment),
    )
    if deployment.method != "none":
        words += command_options(("--spec-type", ROW.methods[deployment.method]))
    if deployment.method == "ngram":
        words += command_options(
            ("--spec-ngram-simple-size-n", _NGRAM), ("--spec-ngram-simple-size-m", deployment.depth)
        )
    elif deployment.method != "none" and deployment.draft is not None:
        heads = source if deployment.method == "eagle3" else None
        draft, _ = _gguf(deployment.draft, deployment, prepared, target=heads)
        words += command_options(("--spec-draft-model", draft), ("--spec-draft-n-max", deployment.depth))
    return LaunchPlan(
        ("llama-server", *words, "--metrics"),
        before=tuple(prepared),
        notes=_notes(deployment, prepared),
        base_url=f"{base_url_of(deployment, port)}/v1",
    )


def _gguf(
    model: str, deployment: Deployment, prepared: list[tuple[str, ...]], *, target: str | None = None
) -> tuple[str, str]:
    """Return a model's GGUF file and its source folder, and add the commands that create them.

    Args:
        model: a GGUF file, a folder, or a hub id, which is downloaded into a folder named like its last part.
        deployment: the deployment; determines the data type of the file.
        prepared: list of commands, modified in place.
        target: for heads, the folder of their target.

    Raises:
        ConfigurationError: the target of heads is not a folder.
    """
    if model.endswith(".gguf"):
        return model, model
    if target is not None and target.endswith(".gguf"):
        raise ConfigurationError(
            f"llama.cpp: the conversion of heads needs their target's folder, but the target is {target!r}; "
            "name that folder, or a GGUF file of the heads."
        )
    folder = model
    if model.count("/") == 1 and not model.startswith((".", "~", "/")) and not Path(model).is_dir():
        folder = model.rpartition("/")[2]
        prepared.append(("hf", "download", model, "--local-dir", folder))
    file = folder.rstrip("/").rpartition("/")[2] + ".gguf"
    if any(file in words for words in prepared):
        file = file.removesuffix(".gguf") + "-draft.gguf"
    outtype = _OUTTYPES.get(deployment.dtype or "", "auto")
    words = ["python3", "convert_hf_to_gguf.py", folder, "--outfile", file, "--outtype", outtype]
    prepared.append((*words, *command_options(("--target-model-dir", target))))
    return file, folder


def _devices(deployment: Deployment) -> list[tuple[str, object]]:
    """Return the options that split the model in equal shares, by rows of each layer or by layers."""
    count = max(deployment.tensor_parallel, deployment.pipeline_parallel)
    if count == 1:
        return []
    mode = "row" if deployment.tensor_parallel > 1 else "layer"
    return [("--split-mode", mode), ("--tensor-split", ",".join(["1"] * count))]


def _notes(deployment: Deployment, prepared: list[tuple[str, ...]]) -> tuple[str, ...]:
    notes: list[str] = []
    if prepared:
        notes.append("Run this script in a checkout of llama.cpp, where convert_hf_to_gguf.py is.")
    if deployment.context is not None:
        notes.append("--ctx-size is shared by all slots: if you set --parallel, multiply --ctx-size by it.")
    if deployment.method == "draft" and deployment.same_tokenizer is None:
        notes.append(
            "Not checked: whether draft and target have the same tokenizer, as llama-server requires."
        )
    return (*notes, *foreign_heads(deployment, "llama.cpp"))


_PROGRAM = ServerProgram(
    help=(("llama-server", "--help"),),
    version=("llama-server", "--version"),
    optional=("--metrics",),
    key_variable="LLAMA_API_KEY",
)

ROW = ServerSpec(
    name="llama.cpp",
    title="llama.cpp",
    provider="llamacpp",
    port=8080,
    methods={"draft": "draft-simple", "ngram": "ngram-simple", "eagle3": "draft-eagle3"},
    missing={
        "medusa": "llama-server has no --spec-type for Medusa heads",
        "eagle": "llama-server supports EAGLE-3 heads only",
        "peagle": "llama-server has no --spec-type for P-EAGLE heads",
        "layer_skip": "llama-server cannot draft with layers of the target",
        "union": "llama-server cannot combine two drafts",
    },
    one_tokenizer="llama-server no longer translates between vocabularies",
    one_split=True,
    sources=(
        _DOCS,
        "https://github.com/ggml-org/llama.cpp/blob/master/docs/speculative.md",
        "https://github.com/ggml-org/llama.cpp/pull/22397",
        "https://github.com/ggml-org/llama.cpp/pull/18039",
    ),
    launch=_launch,
    program=_PROGRAM,
)
