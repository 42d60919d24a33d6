"""Turn a pair into ``sglang.launch_server``: its ``--speculative-…`` options, as of SGLang 0.5.23."""

from __future__ import annotations

from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerSpec,
    base_url_of,
    command_options,
    foreign_heads,
    parallel_degree,
)

_DOCS = "https://docs.sglang.io/docs/advanced_features/speculative_decoding"


def _drafting(asked: Deployment) -> list[str]:
    """Return the options of speculation; none without it.

    Steps, top-k and draft tokens are named together or not at all. The root counts among the draft tokens,
    and there are no more of the others than the draft scores: top-k at the first step, its square at each
    further one.
    """
    if asked.method == "none":
        return []
    top = max(asked.widths, default=1)
    named = ("--speculative-algorithm", ROW.methods[asked.method])
    if asked.method == "ngram":
        return command_options(
            named,
            ("--speculative-num-draft-tokens", asked.nodes + 1),
            ("--speculative-ngram-max-bfs-breadth", top),
        )
    scored = top + (asked.depth - 1) * top * top
    return command_options(
        named,
        ("--speculative-draft-model-path", asked.draft),
        ("--speculative-num-steps", asked.depth),
        ("--speculative-eagle-topk", top),
        ("--speculative-num-draft-tokens", min(asked.nodes, scored) + 1),
    )


def _launch(asked: Deployment, port: int) -> LaunchPlan:
    words = command_options(
        ("--model-path", asked.target),
        ("--served-model-name", asked.served),
        ("--host", asked.host),
        ("--port", port),
        ("--context-length", asked.context),
        ("--dtype", asked.dtype),
        ("--tp-size", parallel_degree(asked.tensor_parallel)),
        ("--pp-size", parallel_degree(asked.pipeline_parallel)),
    )
    command = ("python3", "-m", "sglang.launch_server", *words, *_drafting(asked), "--enable-metrics")
    return LaunchPlan(command, notes=_notes(asked), base_url=f"{base_url_of(asked, port)}/v1")


def _notes(asked: Deployment) -> tuple[str, ...]:
    notes = list(foreign_heads(asked, "SGLang"))
    if asked.method == "ngram":
        notes.append("SGLang looks n-grams up on CUDA devices alone.")
        if asked.tree:
            notes.append("With pages of more than one token, a tree needs --attention-backend flashinfer.")
    if asked.method == "draft" and asked.same_tokenizer is None:
        notes.append(
            "Not checked: that draft and target have one tokenizer, without which nothing is accepted."
        )
    return tuple(notes)


ROW = ServerSpec(
    name="sglang",
    title="SGLang",
    provider="sglang",
    port=30000,
    methods={"draft": "STANDALONE", "ngram": "NGRAM", "eagle": "EAGLE", "eagle3": "EAGLE3"},
    missing={
        "medusa": "SGLang has no algorithm for Medusa heads",
        "layer_skip": "SGLang drafts with no layers of the target",
        "union": "SGLang drafts with one algorithm at a time",
    },
    trees=("draft", "ngram", "eagle", "eagle3"),
    one_tokenizer="STANDALONE verifies the draft's token ids as they are",
    pipelined=("none",),
    sources=(
        _DOCS,
        "https://github.com/sgl-project/sglang/blob/main/docs/advanced_features/speculative_decoding.md",
        "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/arg_groups/validation_hook.py",
    ),
    launch=_launch,
)
