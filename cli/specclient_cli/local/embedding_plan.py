"""The memory of an embedding model, for ``specclient local plan``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient_cli.common import render
from specclient_cli.common.state import State
from specclient_cli.local.sizes import size_of

if TYPE_CHECKING:
    from specclient_local.loading.configured_embeddings import ConfiguredEmbedding
    from specclient_local.loading.embedding_loader import EmbeddingMemoryPlan

#: Options of the command that an embedding model has, too; the others concern decoding.
_OPTIONS = ("dtype", "device", "context")
_DECODING = ("drafts", "heads", "layer_skip", "draft_dtype", "draft_device", "quantize", "draft_quantize")


def embedding_named(state: State, name: str) -> ConfiguredEmbedding | None:
    """Return the embedding model with this name, or in this folder; None where it is another model.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    from specclient_local.embedding.layout_reader import is_embedding_checkpoint  # noqa: PLC0415 - with the extra alone
    from specclient_local.loading.configured_embeddings import (  # noqa: PLC0415
        embedding_for_folder,
        read_configured_embeddings,
    )
    from specclient_local.loading.embedding_options import EmbeddingOptions  # noqa: PLC0415

    short = name.removeprefix("local/")
    found = read_configured_embeddings(state.settings().local.model_dump()).get(short)
    if found is None and is_embedding_checkpoint(Path(short).expanduser()):
        return embedding_for_folder(short, EmbeddingOptions())
    return found


def show_embedding_plan(model: ConfiguredEmbedding, given: Mapping[str, Any]) -> None:
    """Print the memory that an embedding model needs, as a table or as JSON.

    Raises:
        CheckpointError, ConfigurationError: the model cannot be planned, or does not fit.
    """
    with import_lock:
        from specclient_local.loading.embedding_loader import (  # noqa: PLC0415 - imports transformers
            check_embedding_memory,
            plan_embedding,
        )
    from specclient_local.loading.free_memory import free_memory  # noqa: PLC0415
    from specclient_local.model.weights import EMBEDDING_SHAPE, resolve_checkpoint  # noqa: PLC0415

    unused = next((name for name in _DECODING if given.get(name) not in (None, ())), None)
    if unused is not None:
        raise ConfigurationError(
            f"{unused.removesuffix('s')} is {given[unused]!r}, but an embedding model drafts nothing; "
            f"leave it out. Its options are {', '.join(_OPTIONS)}."
        )
    chosen = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    folder = resolve_checkpoint(model.path, whole=False, shape=EMBEDDING_SHAPE)
    memory = given["memory"]
    free = free_memory if memory is None else lambda _: memory
    options = replace(model.options, **chosen)
    plan = plan_embedding(folder, options, free)
    if given["as_json"]:
        click.echo(
            json.dumps(
                {
                    "model": model.path,
                    "kind": "embedding",
                    **asdict(plan),
                    "total": plan.total,
                    "fits": plan.fits,
                }
            )
        )
    else:
        _show(plan)
    check_embedding_memory(folder, options, free)


def _show(plan: EmbeddingMemoryPlan) -> None:
    columns = [
        render.TableColumn(plan.device),
        render.TableColumn("parameters", right=True, rank=2),
        render.TableColumn("data type", rank=1),
        render.TableColumn("weights", right=True),
        render.TableColumn("dimensions", right=True),
        render.TableColumn("context", right=True),
        render.TableColumn(f"batch of {plan.batch_tokens} tokens", right=True),
    ]
    cells = [
        "embedding model",
        f"{plan.parameters / 1e6:.1f} M",
        plan.dtype,
        size_of(plan.weights),
        str(plan.dimensions),
        render.UNKNOWN if plan.context is None else str(plan.context),
        size_of(plan.passes),
    ]
    render.print_table(columns, [render.TableRow(cells)])
    there = f"{size_of(plan.total)}, of {'unknown' if plan.memory is None else size_of(plan.memory)}"
    if plan.fits:
        render.print_paragraph(f"✓ fits: {there}", render.GOOD)
    else:
        render.print_paragraph(f"✗ does not fit: {there}", render.BAD)
