"""``specclient local plan``: the memory that models need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import ConfigurationError
from specclient_cli.common import options, render
from specclient_cli.common.parameter_types import ParameterType
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.embedding_plan import embedding_named, show_embedding_plan
from specclient_cli.local.model_pair import LocalModelPair, model_pair
from specclient_cli.local.sizes import size_of

if TYPE_CHECKING:
    from specclient_local.drafting.vocabulary_match import VocabularyCompatibility
    from specclient_local.loading.memory_advice import PlannedEngine
    from specclient_local.loading.memory_plan import DeviceMemoryPlan
    from specclient_local.loading.model_memory import ModelMemory

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class MemorySize(ParameterType):
    """A number of bytes, such as ``24GiB`` or ``80GB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        match = re.fullmatch(r"([\d.]+)\s*([KMGT]?i?)B?", str(value).strip())
        unit = None if match is None else (_UNITS | _BINARY).get(match.group(2))
        try:
            size = 0 if match is None or unit is None else int(float(match.group(1)) * unit)
        except ValueError:
            size = 0
        if size < 1:
            self.fail(f"{value!r} is not a size; write 24GiB or 80GB.", param, ctx)
        return size


@click.command(name="plan")
@click.argument("model")
@engine_options.loading_options
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of concurrent requests.",
)
@click.option(
    "--memory",
    type=MemorySize(),
    metavar="SIZE",
    help="Available memory, such as 24GiB or 80GB. Default: the free memory of the device.",
)
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Show the memory that models need before they are loaded.

    MODEL is 'demo', a NAME of [local.models.NAME], a folder, a GGUF file, or a hub id. Only shapes are
    read; no weights are downloaded. The output has the size of the weights and of the KV cache per token
    (for heads, of the hidden states that they read), and the longest context and largest number of
    concurrent requests that fit; for a cache in pages, the number of tokens of all requests together. On a
    CPU it has the most memory that is in use while the models are loaded, too; the caches take memory as
    they fill. It also states how a draft with another vocabulary would be used, if its tokenizer is
    available. For an embedding model it has the size of the weights and of the largest batch. The exit code
    is 3 if the models do not fit.

    \b
    Examples:
      specclient local plan demo
      specclient local plan ./llama-3.1-8b --draft ./llama-3.2-1b --slots 8
      specclient local plan Qwen/Qwen3-8B --dtype bfloat16 --memory 24GiB
      specclient local plan ./llama-3.1-8b --heads ./eagle3-llama-3.1-8b
      specclient local plan ./big --quantize int4 --context 32768 --json
      specclient local plan ./llama-3.1-8b --slots 64 --kv-cache paged

    Environment: SPECCLIENT_CONFIG, HF_TOKEN, HF_HOME, NO_COLOR.
    """
    embedding = embedding_named(state, given["model"])
    if embedding is not None:
        show_embedding_plan(embedding, given)
        return
    models = model_pair(state, given)
    folders = _folders(models.target, *models.drafts)
    planned = _planned(models, folders, given["slots"], given["memory"])
    plans = planned.plans()
    if not plans:
        raise ConfigurationError(
            f"{folders[0]}: this model runs in transformers, where only the loaded model knows the size of "
            "its caches; plan a model of a family that the engine's own decoder runs."
        )
    matches = _vocabulary_matches(models, folders)
    if given["as_json"]:
        devices = [_values(device, plan) for device, plan in plans.items()]
        others = [{"draft": draft, **asdict(match)} for draft, match in matches.items()]
        click.echo(json.dumps({**models.values, "devices": devices, "other_vocabularies": others}))
    else:
        _show_all(plans, matches)
    planned.checked()


def _show_all(plans: Mapping[str, DeviceMemoryPlan], matches: Mapping[str, VocabularyCompatibility]) -> None:
    """Print a table for each device, and how drafts with another vocabulary would be used."""
    for i, (device, plan) in enumerate(plans.items()):
        if i:
            click.echo()
        _show(device, plan)
    for draft, match in matches.items():
        finding = f"{draft} has another vocabulary ({match.difference}, target first)"
        if match.way == "refused":
            render.print_paragraph(f"✗ {finding} and is refused: {match.said}", render.BAD)
        else:
            render.print_paragraph(f"{finding}: {match.said}; answers stay exact")


def _folders(*paths: str) -> list[Path]:
    """Return the folders of checkpoints; for a hub id, only the shape is downloaded."""
    from specclient_local.model.weights import resolve_checkpoint  # noqa: PLC0415 - imports torch

    return [resolve_checkpoint(path, whole=False) for path in paths]


def _planned(models: LocalModelPair, folders: list[Path], slots: int, memory: int | None) -> PlannedEngine:
    """Return the engine as it would be loaded.

    Raises:
        CheckpointError, ConfigurationError: the models cannot be planned.
    """
    from specclient_local.loading.engine_loader import DEFAULT_CONTEXT  # noqa: PLC0415 - import torch
    from specclient_local.loading.free_memory import free_memory  # noqa: PLC0415
    from specclient_local.loading.memory_advice import PlannedEngine  # noqa: PLC0415
    from specclient_local.loading.model_loader import read_any_config  # noqa: PLC0415
    from specclient_local.loading.options import EngineOptions  # noqa: PLC0415

    options = EngineOptions.read({**models.options, "draft": list(models.drafts), "slots": slots})
    target, *drafts = folders
    own = read_any_config(target, options.runner).context
    context = min(own, DEFAULT_CONTEXT) if options.context is None else options.context
    if context > own:
        raise ConfigurationError(
            f"context is {context}; allowed is 2 to {own}, the longest that {target} supports."
        )
    free = free_memory if memory is None else lambda _: memory
    heads = _folders(*options.head_paths(models.target))
    return PlannedEngine(target, drafts, options, context, free, heads)


def _vocabulary_matches(models: LocalModelPair, folders: list[Path]) -> dict[str, VocabularyCompatibility]:
    """Return how drafts with another vocabulary would be used, if their tokenizers are local."""
    from specclient_local.drafting.vocabulary_match import check_compatibility  # noqa: PLC0415 - imports torch
    from specclient_local.loading.model_loader import read_any_config  # noqa: PLC0415
    from specclient_local.model.checkpoint_files import is_gguf  # noqa: PLC0415
    from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415

    vocabulary, runner = (models.options.get(name) or "auto" for name in ("draft_vocabulary", "runner"))
    target, *drafts = folders
    found: dict[str, VocabularyCompatibility] = {}
    for name, draft in zip(models.drafts, drafts, strict=True):
        if not all(is_gguf(path) or (path / "tokenizer.json").is_file() for path in (target, draft)):
            continue
        configs = read_any_config(target, runner), read_any_config(draft, runner)
        other = check_compatibility(Tokenizer(target), Tokenizer(draft), configs, vocabulary)
        if other is not None:
            found[name] = other
    return found


def _values(device: str, plan: DeviceMemoryPlan) -> dict[str, Any]:
    return {
        "device": device,
        "slots": plan.slots,
        "context": plan.context,
        "memory": plan.memory,
        "weights": plan.weights,
        "kv_per_token": plan.kv_per_token,
        "caches": plan.caches,
        "total": plan.total,
        "resident": plan.resident,
        "loading_peak": plan.loading_peak if device == "cpu" else None,
        "fits": plan.fits,
        "max_context": plan.max_context,
        "max_slots": plan.max_slots,
        "cache_tokens": plan.cache_tokens if plan.paged else None,
        "max_cache_tokens": plan.max_cache_tokens if plan.paged else None,
        "models": [
            {
                "name": model.name,
                "parameters": model.parameters,
                "layers": model.config.layers,
                "dtype": model.dtype,
                "quantize": model.quantize,
                "weights": model.weights,
                "kv_per_token": model.kv_per_token,
                "caches": plan.cache_of(model),
            }
            for model in plan.models
        ],
    }


def _show(device: str, plan: DeviceMemoryPlan) -> None:
    columns = [
        render.TableColumn(device),
        render.TableColumn("parameters", right=True, rank=2),
        render.TableColumn("data type", rank=1),
        render.TableColumn("weights", right=True),
        render.TableColumn("KV per token", right=True),
        render.TableColumn(
            "caches" if plan.paged else f"{plan.slots} × {plan.context} tokens",
            right=True,
        ),
    ]
    lines = [_line(model, plan) for model in plan.models]
    if len(lines) > 1:
        sums = ["together", "", "", size_of(plan.weights), size_of(plan.kv_per_token), size_of(plan.caches)]
        lines.append(render.TableRow(sums, style="bold"))
    render.print_table(columns, lines)
    needed = f"{size_of(plan.total)} including the working memory of passes"
    if device == "cpu":
        needed += f", {size_of(plan.loading_peak)} while loading"
    if plan.memory is None:
        render.print_paragraph(f"{needed}; the memory of {device} is unknown, use --memory to set it")
        return
    there = f"{needed}, of {size_of(plan.memory)}"
    if plan.fits:
        render.print_paragraph(f"✓ fits: {there}", render.GOOD)
    else:
        render.print_paragraph(f"✗ does not fit: {there}", render.BAD)
    if plan.paged and plan.max_cache_tokens:
        render.print_paragraph(
            f"the pages hold {plan.cache_tokens} tokens, of all {plan.slots} slots together; there is room "
            f"for pages of {plan.max_cache_tokens}"
        )
        return
    if not plan.max_context and not plan.max_slots:
        return  # the error says what suffices
    longest = f"context up to {plan.max_context} with {plan.slots} slots" if plan.max_context else ""
    slots = "1 slot" if plan.max_slots == 1 else f"{plan.max_slots} slots"
    most = f"up to {slots} with a context of {plan.context}" if plan.max_slots else ""
    render.print_paragraph("room for " + ", or ".join(filter(None, (longest, most))))


def _line(model: ModelMemory, plan: DeviceMemoryPlan) -> render.TableRow:
    count = model.parameters
    size = f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.1f} M" if count else ""
    held = model.quantize or model.dtype
    weights = "shared" if model.shares_weights else size_of(model.weights) if model.weights else ""
    caches = size_of(plan.cache_of(model))
    return render.TableRow([model.name, size, held, weights, size_of(model.kv_per_token), caches])
