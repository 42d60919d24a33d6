"""Turn a pair into ``vllm serve``: the keys of ``--speculative-config``, as of vLLM 0.33."""

from __future__ import annotations

import json
from typing import Any

from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerSpec,
    base_url_of,
    command_options,
    parallel_degree,
)

_DOCS = "https://docs.vllm.ai/en/latest/features/speculative_decoding/"

_LOOKUP = {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
"""The page's own example; without them only runs of five tokens are looked up."""


def speculative_config(asked: Deployment) -> dict[str, Any]:
    """Return the object of ``--speculative-config``; empty without speculation."""
    if asked.method == "none":
        return {}
    config: dict[str, Any] = {"method": ROW.methods[asked.method]}
    if asked.draft is not None and asked.method != "ngram":
        config["model"] = asked.draft
    config["num_speculative_tokens"] = asked.depth
    if asked.method == "ngram":
        config |= _LOOKUP
    if asked.method == "draft" and asked.same_tokenizer is False:
        config["use_heterogeneous_vocab"] = True
    return config


def _launch(asked: Deployment, port: int) -> LaunchPlan:
    config = speculative_config(asked)
    words = command_options(
        ("--served-model-name", asked.served),
        ("--host", asked.host),
        ("--port", port),
        ("--max-model-len", asked.context),
        ("--dtype", asked.dtype),
        ("--tensor-parallel-size", parallel_degree(asked.tensor_parallel)),
        ("--pipeline-parallel-size", parallel_degree(asked.pipeline_parallel)),
        ("--speculative-config", json.dumps(config) if config else None),
        ("--per-request-spec-decode-metrics", "summary" if config else None),
    )
    url = base_url_of(asked, port)
    return LaunchPlan(("vllm", "serve", asked.target, *words), notes=_notes(asked), base_url=f"{url}/v1")


def _notes(asked: Deployment) -> tuple[str, ...]:
    if asked.method == "none":
        return ()
    notes = ["Requests with min_p or logit_bias are answered with 400 while vLLM speculates."]
    if asked.method == "draft" and asked.same_tokenizer is False:
        notes.append("The draft proposes tokens that both vocabularies have, its likeliest ones.")
    if asked.method == "draft" and asked.same_tokenizer is None:
        notes.append(
            "Not checked: that draft and target have one tokenizer. If they do not, add "
            '"use_heterogeneous_vocab": true to the object.'
        )
    return tuple(notes)


ROW = ServerSpec(
    name="vllm",
    title="vLLM",
    provider="vllm",
    port=8000,
    methods={"draft": "draft_model", "ngram": "ngram", "eagle": "eagle", "eagle3": "eagle3"},
    missing={
        "medusa": "vLLM has served no Medusa heads since mid-2026",
        "layer_skip": "vLLM drafts with no layers of the target",
        "union": "vLLM drafts with one method at a time",
    },
    refused=("min_p", "logit_bias"),
    pipelined=("none", "eagle3"),
    sources=(
        _DOCS,
        "https://github.com/vllm-project/vllm/blob/main/docs/features/speculative_decoding/draft_model.md",
        "https://github.com/vllm-project/vllm/blob/main/docs/features/speculative_decoding/acceptance_metrics.md",
        "https://github.com/vllm-project/vllm/pull/55623",
    ),
    launch=_launch,
)
