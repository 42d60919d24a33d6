"""SGLang: ``sglang.launch_server`` with its ``--speculative-…`` options, as of SGLang 0.5.23."""

from __future__ import annotations

from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerProgram,
    ServerSpec,
    base_url_of,
    command_options,
    foreign_heads,
    parallel_degree,
)

_DOCS = "https://docs.sglang.io/docs/advanced_features/speculative_decoding"


def _drafting(deployment: Deployment) -> list[str]:
    """Return the options of speculation; none for plain decoding.

    SGLang requires steps, top-k and number of draft tokens together. That number includes the root. The other
    tokens cannot be more than those that the draft scores: top-k at the first step, its square at each
    further one.
    """
    if deployment.method == "none":
        return []
    top = max(deployment.widths, default=1)
    named = ("--speculative-algorithm", ROW.methods[deployment.method])
    if deployment.method == "ngram":
        return command_options(
            named,
            ("--speculative-num-draft-tokens", deployment.nodes + 1),
            ("--speculative-ngram-max-bfs-breadth", top),
        )
    scored = top + (deployment.depth - 1) * top * top
    return command_options(
        named,
        ("--speculative-draft-model-path", deployment.draft),
        ("--speculative-num-steps", deployment.depth),
        ("--speculative-eagle-topk", top),
        ("--speculative-num-draft-tokens", min(deployment.nodes, scored) + 1),
    )


def _launch(deployment: Deployment, port: int) -> LaunchPlan:
    words = command_options(
        ("--model-path", deployment.target),
        ("--served-model-name", deployment.served),
        ("--host", deployment.host),
        ("--port", port),
        ("--context-length", deployment.context),
        ("--dtype", deployment.dtype),
        ("--tp-size", parallel_degree(deployment.tensor_parallel)),
        ("--pp-size", parallel_degree(deployment.pipeline_parallel)),
    )
    command = ("python3", "-m", "sglang.launch_server", *words, *_drafting(deployment), "--enable-metrics")
    return LaunchPlan(command, notes=_notes(deployment), base_url=f"{base_url_of(deployment, port)}/v1")


def _notes(deployment: Deployment) -> tuple[str, ...]:
    notes = list(foreign_heads(deployment, "SGLang"))
    if deployment.method == "ngram":
        notes.append("SGLang supports n-gram drafting on CUDA devices only.")
        if deployment.tree:
            notes.append("With pages of more than one token, a tree needs --attention-backend flashinfer.")
    if deployment.method == "draft" and deployment.same_tokenizer is None:
        notes.append(
            "Not checked: whether draft and target have the same tokenizer; otherwise no token is accepted."
        )
    return tuple(notes)


_PROGRAM = ServerProgram(
    help=(("python3", "-m", "sglang.launch_server", "--help"),),
    version=("python3", "-c", "import sglang; print(sglang.__version__)"),
    optional=("--enable-metrics",),
    key_option="--api-key",
)

ROW = ServerSpec(
    name="sglang",
    title="SGLang",
    provider="sglang",
    port=30000,
    methods={"draft": "STANDALONE", "ngram": "NGRAM", "eagle": "EAGLE", "eagle3": "EAGLE3"},
    missing={
        "medusa": "SGLang has no algorithm for Medusa heads",
        "peagle": "SGLang has no algorithm that drafts all tokens in one pass of an EAGLE head",
        "layer_skip": "SGLang cannot draft with layers of the target",
        "union": "SGLang drafts with one algorithm at a time",
    },
    trees=("draft", "ngram", "eagle", "eagle3"),
    one_tokenizer="STANDALONE verifies the draft's token ids without translating them",
    pipelined=("none",),
    sources=(
        _DOCS,
        "https://github.com/sgl-project/sglang/blob/main/docs/advanced_features/speculative_decoding.md",
        "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/arg_groups/validation_hook.py",
        "https://github.com/sgl-project/sglang/issues/23171",
    ),
    launch=_launch,
    program=_PROGRAM,
)
