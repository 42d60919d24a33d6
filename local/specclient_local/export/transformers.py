"""transformers: ``transformers serve``, as of transformers 5.23; one model, without speculation."""

from __future__ import annotations

from specclient_local.export.deployment import (
    DEPLOYMENT_METHODS,
    Deployment,
    LaunchPlan,
    ServerProgram,
    ServerSpec,
    base_url_of,
    command_options,
)

_DOCS = "https://huggingface.co/docs/transformers/main/en/serving"


def _launch(deployment: Deployment, port: int) -> LaunchPlan:
    words = command_options(
        ("--host", deployment.host),
        ("--port", port),
        ("--dtype", deployment.dtype),
    )
    notes = ["Requests name the model as this command does; there is no API key."]
    if deployment.context is not None:
        notes.append("There is no option for the context; it is that of the checkpoint.")
    if max(deployment.tensor_parallel, deployment.pipeline_parallel) > 1:
        notes.append("There are no options for several devices; it uses those that transformers chooses.")
    return LaunchPlan(
        ("transformers", "serve", deployment.target, *words),
        notes=tuple(notes),
        base_url=f"{base_url_of(deployment, port)}/v1",
        metrics=False,
        model=deployment.target,
    )


_PROGRAM = ServerProgram(
    help=(("transformers", "serve", "--help"),),
    version=("python3", "-c", "import transformers; print(transformers.__version__)"),
)

_PLAIN = "transformers serve decodes without a draft"

ROW = ServerSpec(
    name="transformers",
    title="transformers serve",
    provider="transformers",
    port=8000,
    methods={},
    missing={method: _PLAIN for method in DEPLOYMENT_METHODS if method != "none"},
    sources=(_DOCS,),
    launch=_launch,
    program=_PROGRAM,
)
