"""Turn a pair of models into what starts another server with it: ``specclient local export``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click
from specclient_local.model.config import BUNDLED_MARK, DTYPES, local_folder

from specclient.errors import ConfigurationError
from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.config.provider_entry import register

if TYPE_CHECKING:
    from specclient_local.export import Deployment, DeploymentMethod, LaunchPlan
    from specclient_local.loading.configured_models import ConfiguredModel

_TO = ("vllm", "sglang", "trtllm", "llama.cpp")
_METHODS = ("auto", "none", "draft", "ngram", "eagle", "eagle3", "medusa", "layer_skip", "union")


@click.command(name="export")
@click.argument("pair")
@click.option("--to", type=click.Choice(_TO), required=True, help="The server.")
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="auto",
    show_default=True,
    help="How it speculates. 'auto': as configured; else by what is named, heads before a draft.",
)
@click.option("--draft", help="Folder or hub id of a smaller model. Default: as configured.")
@click.option("--heads", help="Folder or hub id of EAGLE heads. Default: as configured.")
@click.option(
    "--depth", type=click.IntRange(1, 64), help="Tokens drafted in a row. Default: as many as --widths, or 4."
)
@click.option(
    "--widths",
    metavar="A,B,C",
    help="Guesses below each guess, a level each; for servers that draft trees.",
)
@click.option("--context", type=click.IntRange(min=2), help="Tokens of prompt and answer together.")
@click.option("--dtype", type=click.Choice(DTYPES), help="To compute in. Default: the checkpoint's.")
@click.option(
    "--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Devices for each layer."
)
@click.option("--pp", type=click.IntRange(min=1), default=1, show_default=True, help="Devices in a pipeline.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the server listens.")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: the server's own.")
@click.option("--served-name", metavar="NAME", help="The model's name in requests. Default: of its folder.")
@click.option(
    "--sampling",
    multiple=True,
    metavar="PARAMETER",
    help="A parameter that requests will have, as min_p; refused where the server refuses it. Repeatable.",
)
@click.option(
    "--register", "provider", metavar="NAME", help="Add the server to specclient.toml under a name."
)
@click.option("--url", help="Where it will be found, with --register. Default: this machine.")
@click.option("--api-key-env", metavar="VARIABLE", help="That holds its key, with --register.")
@options.json_option
@pass_state
def command(state: State, /, pair: str, to: str, **given: Any) -> None:
    """Print what starts another server with a pair of models.

    PAIR is 'demo', a name of [local.models], a folder, a hub id, or a GGUF file for llama.cpp. What is
    printed is a shell script. What a server cannot do is refused, with what to do instead.

    \b
    Examples:
      specclient local export demo --to vllm
      specclient local export Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --to vllm
      specclient local export ./big --heads ./eagle3 --to sglang --widths 4,2,1
      specclient local export big --to trtllm --register gpu --url http://gpu/v1

    Environment: SPECCLIENT_CONFIG.
    """
    from specclient_local.export import SERVERS, launch  # noqa: PLC0415 - needed here alone

    if given["provider"] is None and (given["url"] or given["api_key_env"]):
        raise click.UsageError("--url and --api-key-env go with --register.")
    asked = _deployment(state, pair, given)
    found = launch(to, asked)
    told: dict[str, Any] = {}
    if given["provider"] is not None:
        told = register(
            state,
            given["provider"],
            url=given["url"] or found.base_url,
            metrics=found.metrics if given["url"] is None or found.metrics is True else _moved(given["url"]),
            model=asked.served,
            like=SERVERS[to].provider,
            key_env=given["api_key_env"],
        )
    if given["as_json"]:
        click.echo(json.dumps(_values(to, asked, found, told)))
        return
    click.echo(found.script, nl=False)
    if told:
        click.echo(f"registered {told['route']} in {told['file']}", err=True)


def _deployment(state: State, pair: str, given: Mapping[str, Any]) -> Deployment:
    """Return what is asked for, with what is configured of the pair.

    Raises:
        CheckpointError, ConfigurationError: a pair, heads or widths that cannot be used.
    """
    from specclient_local.export import Deployment, sampling_defaults  # noqa: PLC0415
    from specclient_local.loading.configured_models import read_configured_models  # noqa: PLC0415 - checks what is installed

    row = read_configured_models(state.settings().local.model_dump()).get(pair.removeprefix("local/"))
    target = _unbundled(pair if row is None else row.path)
    method, draft, layout = _drafting(row, given)
    widths = _widths(given["widths"])
    depth = given["depth"] or len(widths) or 4
    asked = Deployment(
        target=target,
        method=method,
        draft=draft,
        depth=depth,
        widths=widths,
        context=given["context"] or (row.options.context if row else None),
        dtype=given["dtype"],
        tensor_parallel=given["tp"],
        pipeline_parallel=given["pp"],
        host=given["host"],
        port=given["port"],
        name=given["served_name"] or (None if row is None else pair.removeprefix("local/")),
        sampling=tuple(dict.fromkeys([*given["sampling"], *sampling_defaults(target)])),
        format=layout,
    )
    return _with_tokenizers(asked)


def _with_tokenizers(asked: Deployment) -> Deployment:
    """Say whether the draft's tokenizer is the target's, where both are here."""
    from specclient_local.export import same_tokenizer  # noqa: PLC0415

    if asked.method != "draft" or asked.draft is None:
        return asked
    return replace(asked, same_tokenizer=same_tokenizer(asked.target, asked.draft))


def _drafting(
    row: ConfiguredModel | None, given: Mapping[str, Any]
) -> tuple[DeploymentMethod, str | None, str]:
    """Return the method, the checkpoint that drafts, and the layout of heads.

    Raises:
        CheckpointError: something bundled that is not there.
        ConfigurationError: several drafts, or heads of a kind that nothing tells.
    """
    from specclient_local.export import heads_method  # noqa: PLC0415

    method = given["method"]
    drafts = (given["draft"],) if given["draft"] else row.options.draft if row else ()
    heads = (given["heads"],) if given["heads"] else row.options.heads if row else ()
    drafts, heads = tuple(map(_unbundled, drafts)), tuple(map(_unbundled, heads))
    if method == "auto" and row is not None and not (given["draft"] or given["heads"]):
        method = _METHOD_OF.get(row.options.method, row.options.method)
    if method == "auto":
        method = "heads" if heads else "draft" if drafts else "none"
    if method == "draft" and len(drafts) > 1:
        raise ConfigurationError(
            f"drafts are {', '.join(drafts)}; a server takes one, choose it with --draft."
        )
    if method == "draft":
        return method, drafts[0] if drafts else None, ""
    if method in ("heads", "eagle", "eagle3", "medusa") and heads:
        return _of_heads(method, heads[0], heads_method)
    return ("eagle3" if method == "heads" else method), None, ""


def _unbundled(name: str) -> str:
    """Return the folder of what the package brings, which no other server knows by name; else the name."""
    return str(local_folder(name)) if name.startswith(BUNDLED_MARK) else name


def _of_heads(method: str, heads: str, heads_method: Any) -> tuple[DeploymentMethod, str, str]:
    """Return what heads are for: as their folder tells, or as was said of those that are not here."""
    if method == "heads":
        kind, layout = heads_method(heads)
        return kind, heads, layout
    try:
        kind, layout = heads_method(heads)
    except ConfigurationError:
        return method, heads, ""  # type: ignore[return-value]  # a choice of the option
    if method != kind and not (method == "eagle" and kind == "eagle3"):
        raise ConfigurationError(
            f"method is {method!r}, but the heads {heads} are {kind}'s; leave --method out."
        )
    return kind, heads, layout


_METHOD_OF = {"plain": "none", "eagle": "heads", "medusa": "heads"}
"""What methods of [local.models] are called here."""


def _widths(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        widths = tuple(int(word) for word in text.split(","))
    except ValueError:
        widths = (0,)
    if min(widths) < 1 or max(widths) > 64:
        raise click.BadParameter(f"{text!r} are no widths; write numbers from 1 to 64, such as 4,2,1.")
    return widths


def _moved(url: str) -> str:
    """Return where a TensorRT-LLM server at a base URL serves its counters."""
    return f"{url.rstrip('/').removesuffix('/v1')}/prometheus/metrics"


def _values(to: str, asked: Deployment, found: LaunchPlan, told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "server": to,
        "command": list(found.command),
        "before": [list(words) for words in found.before],
        "files": dict(found.files),
        "notes": list(found.notes),
        "base_url": found.base_url,
        "deployment": asdict(asked),
        "registered": dict(told) or None,
    }
