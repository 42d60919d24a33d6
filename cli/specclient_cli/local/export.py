"""``specclient local export``: a script that starts another inference server with a pair of models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from specclient_local.model.config import DTYPES

from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.config.provider_entry import register
from specclient_cli.local.model_pair import configured_model

if TYPE_CHECKING:
    from specclient_local.export import Deployment, LaunchPlan

_TO = ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")
#: Values of ``--method``. A method that the server does not have is refused with the reason.
_METHODS = ("auto", "none", "draft", "ngram", "eagle", "eagle3", "peagle", "medusa", "layer_skip", "union")


@click.command(name="export")
@click.argument("pair")
@click.option("--to", type=click.Choice(_TO), required=True, help="Server to start.")
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="auto",
    show_default=True,
    help="Speculation method. auto: as configured, else heads if given, else the draft if given.",
)
@click.option("--draft", help="Folder or hub id of a draft model. Default: as configured.")
@click.option("--heads", help="Folder or hub id of EAGLE or P-EAGLE heads. Default: as configured.")
@click.option(
    "--depth", type=click.IntRange(1, 64), help="Draft length. Default: the number of --widths, or 4."
)
@click.option(
    "--widths",
    metavar="A,B,C",
    help="Width of each level of the draft tree, for servers that draft trees.",
)
@click.option("--context", type=click.IntRange(min=2), help="Maximum tokens of prompt and answer.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), help="Data type of computation. Default: that of the checkpoint."
)
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel size.")
@click.option(
    "--pp", type=click.IntRange(min=1), default=1, show_default=True, help="Pipeline-parallel size."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the server listens on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port. Default: that of the server.")
@click.option(
    "--served-name", metavar="NAME", help="Name of the model in requests. Default: the name of its folder."
)
@click.option(
    "--sampling",
    multiple=True,
    metavar="PARAMETER",
    help="Sampling parameter that requests will use, such as min_p; an error if the server does not support "
    "it. May be repeated.",
)
@click.option(
    "--register", "provider", metavar="NAME", help="Add the server to specclient.toml under this name."
)
@click.option("--url", help="Base URL of the server, with --register. Default: this machine.")
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable of its key, with --register.")
@options.json_option
@pass_state
def command(state: State, /, pair: str, to: str, **given: Any) -> None:
    """Print a script that starts another inference server with a pair of models.

    PAIR is 'demo', a NAME of [local.models.NAME], a folder, a hub id, or a GGUF file for llama.cpp. The
    output is a shell script. If the server does not support an option, the error names an alternative.

    \b
    Examples:
      specclient local export demo --to vllm
      specclient local export Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --to vllm
      specclient local export ./big --heads ./eagle3 --to sglang --widths 4,2,1
      specclient local export big --to trtllm --register gpu --url http://gpu/v1

    Environment: SPECCLIENT_CONFIG.
    """
    from specclient_local.export import SERVERS, launch  # noqa: PLC0415 - used only here

    if given["provider"] is None and (given["url"] or given["api_key_env"]):
        raise click.UsageError("--url and --api-key-env work only with --register.")
    deployment = _deployment(state, pair, given)
    plan = launch(to, deployment)
    registered: dict[str, Any] = {}
    if given["provider"] is not None:
        registered = register(
            state,
            given["provider"],
            url=given["url"] or plan.base_url,
            metrics=plan.metrics
            if given["url"] is None or plan.metrics is True
            else _metrics_url(given["url"]),
            model=plan.model or deployment.served,
            like=SERVERS[to].provider,
            key_env=given["api_key_env"],
        )
    if given["as_json"]:
        click.echo(json.dumps(_values(to, deployment, plan, registered)))
        return
    click.echo(plan.script, nl=False)
    if registered:
        click.echo(f"registered {registered['route']} in {registered['file']}", err=True)


def _deployment(state: State, pair: str, given: Mapping[str, Any]) -> Deployment:
    """Return the deployment given by the options and the configuration of the pair.

    Raises:
        CheckpointError, ConfigurationError: the pair, heads or widths are invalid.
    """
    from specclient_local.export.pair_deployment import SERVED_METHODS, pair_deployment  # noqa: PLC0415

    row = configured_model(state, pair)
    drafts = (given["draft"],) if given["draft"] else row.options.draft if row else ()
    heads = (given["heads"],) if given["heads"] else row.options.heads if row else ()
    method = given["method"]
    if method == "auto" and row is not None and not (given["draft"] or given["heads"]):
        method = SERVED_METHODS.get(row.options.method, row.options.method)
    widths = _widths(given["widths"])
    return pair_deployment(
        pair if row is None else row.path,
        method=method,
        drafts=drafts,
        heads=heads,
        depth=given["depth"] or (None if widths or row is None else row.served_depth),
        widths=widths,
        context=given["context"] or (row.options.context if row else None),
        dtype=given["dtype"] or (row.stated_dtype if row else None),
        tensor_parallel=given["tp"],
        pipeline_parallel=given["pp"],
        host=given["host"],
        port=given["port"],
        name=given["served_name"] or (None if row is None else pair.removeprefix("local/")),
        sampling=given["sampling"],
    )


def _widths(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        widths = tuple(int(word) for word in text.split(","))
    except ValueError:
        widths = (0,)
    if min(widths) < 1 or max(widths) > 64:
        raise click.BadParameter(
            f"{text!r} is not a list of widths; write numbers from 1 to 64, such as 4,2,1."
        )
    return widths


def _metrics_url(url: str) -> str:
    """Return the URL of the counters of a TensorRT-LLM server with this base URL."""
    return f"{url.rstrip('/').removesuffix('/v1')}/prometheus/metrics"


def _values(
    to: str, deployment: Deployment, plan: LaunchPlan, registered: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "server": to,
        "command": list(plan.command),
        "before": [list(words) for words in plan.before],
        "files": dict(plan.files),
        "notes": list(plan.notes),
        "base_url": plan.base_url,
        "deployment": asdict(deployment),
        "registered": dict(registered) or None,
    }
