"""Turn a pair into GGUF files and ``llama-server``: its ``--spec-…`` options, as renamed in April 2026."""

from __future__ import annotations

from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerSpec,
    base_url_of,
    command_options,
    foreign_heads,
)

_DOCS = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
_OUTTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_KEY = 4
"""Tokens that must stand there before for what followed them to be drafted; the default, 12, rarely do."""


def _launch(asked: Deployment, port: int) -> LaunchPlan:
    prepared: list[tuple[str, ...]] = []
    target, source = _gguf(asked.target, asked, prepared)
    words = command_options(
        ("--model", target),
        ("--alias", asked.served),
        ("--host", asked.host),
        ("--port", port),
        ("--ctx-size", asked.context),
        *_devices(asked),
    )
    if asked.method != "none":
        words += command_options(("--spec-type", ROW.methods[asked.method]))
    if asked.method == "ngram":
        words += command_options(
            ("--spec-ngram-simple-size-n", _KEY), ("--spec-ngram-simple-size-m", asked.depth)
        )
    elif asked.method != "none" and asked.draft is not None:
        heads = source if asked.method == "eagle3" else None
        draft, _ = _gguf(asked.draft, asked, prepared, target=heads)
        words += command_options(("--spec-draft-model", draft), ("--spec-draft-n-max", asked.depth))
    return LaunchPlan(
        ("llama-server", *words, "--metrics"),
        before=tuple(prepared),
        notes=_notes(asked, prepared),
        base_url=f"{base_url_of(asked, port)}/v1",
    )


def _gguf(
    model: str, asked: Deployment, prepared: list[tuple[str, ...]], *, target: str | None = None
) -> tuple[str, str]:
    """Return a model's GGUF file and the folder it comes from, and add what makes them.

    Args:
        model: a GGUF file, a folder, or a hub id, which is fetched into a folder of its last part's name.
        asked: whose dtype the file gets.
        prepared: commands, added to.
        target: the folder of the target whose heads these are.

    Raises:
        ConfigurationError: heads whose target is no folder.
    """
    if model.endswith(".gguf"):
        return model, model
    if target is not None and target.endswith(".gguf"):
        raise ConfigurationError(
            f"llama.cpp: heads are converted beside their target's folder, but the target is {target!r}; "
            "name that folder, or heads that are a GGUF file."
        )
    folder = model
    if model.count("/") == 1 and not model.startswith((".", "~", "/")) and not Path(model).is_dir():
        folder = model.rpartition("/")[2]
        prepared.append(("hf", "download", model, "--local-dir", folder))
    file = folder.rstrip("/").rpartition("/")[2] + ".gguf"
    if any(file in words for words in prepared):
        file = file.removesuffix(".gguf") + "-draft.gguf"
    outtype = _OUTTYPES.get(asked.dtype or "", "auto")
    words = ["python3", "convert_hf_to_gguf.py", folder, "--outfile", file, "--outtype", outtype]
    prepared.append((*words, *command_options(("--target-model-dir", target))))
    return file, folder


def _devices(asked: Deployment) -> list[tuple[str, object]]:
    """Return how the model is split: rows of each layer, or layers, in equal shares."""
    count = max(asked.tensor_parallel, asked.pipeline_parallel)
    if count == 1:
        return []
    mode = "row" if asked.tensor_parallel > 1 else "layer"
    return [("--split-mode", mode), ("--tensor-split", ",".join(["1"] * count))]


def _notes(asked: Deployment, prepared: list[tuple[str, ...]]) -> tuple[str, ...]:
    notes: list[str] = []
    if prepared:
        notes.append("Run where llama.cpp's convert_hf_to_gguf.py is, in a checkout of its repository.")
    if asked.context is not None:
        notes.append("--ctx-size is shared by all slots: multiply it by --parallel where you set that.")
    if asked.method == "draft" and asked.same_tokenizer is None:
        notes.append("Not checked: that draft and target have one tokenizer; llama-server wants the same.")
    return (*notes, *foreign_heads(asked, "llama.cpp"))


ROW = ServerSpec(
    name="llama.cpp",
    title="llama.cpp",
    provider="llamacpp",
    port=8080,
    methods={"draft": "draft-simple", "ngram": "ngram-simple", "eagle3": "draft-eagle3"},
    missing={
        "medusa": "llama-server has no --spec-type for Medusa heads",
        "eagle": "llama-server has a --spec-type for EAGLE-3 heads alone",
        "layer_skip": "llama-server drafts with no layers of the target",
        "union": "llama-server is not told to try two models' drafts",
    },
    one_tokenizer="llama-server no longer translates between vocabularies",
    either=True,
    sources=(
        _DOCS,
        "https://github.com/ggml-org/llama.cpp/blob/master/docs/speculative.md",
        "https://github.com/ggml-org/llama.cpp/pull/22397",
        "https://github.com/ggml-org/llama.cpp/pull/18039",
    ),
    launch=_launch,
)
