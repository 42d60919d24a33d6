"""The inputs of a measurement: target, candidates, prompts and their tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import ConfigurationError
from specclient_cli.common.state import State
from specclient_cli.local.model_pair import configured_model

if TYPE_CHECKING:
    from specclient_local.loading.configured_models import ConfiguredModel
    from specclient_local.measure.pick.candidates import DraftCandidate
    from specclient_local.measure.pick.selection import PickSettings


def prepare(state: State, given: dict[str, Any]) -> tuple[str, list[DraftCandidate], PickSettings, Any]:
    """Return target, candidates, settings of the measurement, and a function that loads an engine."""
    from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch
    from specclient_local.loading.model_loader import read_any_config  # noqa: PLC0415
    from specclient_local.measure.pick.candidates import parse_candidate  # noqa: PLC0415
    from specclient_local.measure.pick.selection import PickSettings  # noqa: PLC0415
    from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415
    from specclient_local.model.weights import resolve_checkpoint  # noqa: PLC0415

    settings = state.settings().local
    row = configured_model(state, given["target"])
    target = given["target"] if row is None else row.path
    folder = resolve_checkpoint(target)
    context = min(read_any_config(folder).context, 4096)
    prompts, tasks = _prompts(Tokenizer(folder), given, context)
    names = given["candidates"] or _default_candidates(row, folder)
    longest = max(map(len, prompts)) + given["new"]
    where = {name: given[name] for name in ("device", "dtype")}
    candidates = [parse_candidate(name, folder, context=longest, **where) for name in names]
    fixed = {
        **where,
        "threads": given["threads"] or settings.threads,
        "prefix_cache": False,
        "slots": 1,
        "context": min(context, longest + 16),
    }

    def load(each: DraftCandidate) -> Engine:
        return Engine.load(folder, **{**fixed, **each.load_options})

    picking = PickSettings(
        prompts, tasks, given["new"], given["depth"], given["temperature"], given["repeat"]
    )
    return target, candidates, picking, load


def _default_candidates(row: ConfiguredModel | None, folder: Path) -> tuple[str, ...]:
    """Return the candidates for a target if none are given."""
    from specclient_local.drafting.modelless import MODELLESS_ENGINE_METHODS  # noqa: PLC0415 - imports torch
    from specclient_local.loading.model_loader import uses_own_decoder  # noqa: PLC0415

    drafts = row.options.draft if row is not None else ()
    own_layers = ("layer_skip",) if uses_own_decoder(folder, "auto") else ()
    return (*drafts, *MODELLESS_ENGINE_METHODS, *own_layers)


def _prompts(tokenizer: Any, given: dict[str, Any], context: int) -> tuple[list[list[int]], list[str]]:
    """Return token ids of the prompts that fit, and the task of each."""
    from specclient_local.measure.prompts import held_out, read_prompts  # noqa: PLC0415

    if given["data"] is None:
        ids = held_out(tokenizer, given["count"])
        return ids, ["code"] * len(ids)
    texts = read_prompts(given["data"])[: given["count"]]
    named = _tasks(given["data"], texts)
    encoded = [(tokenizer.encode(text), task) for text, task in zip(texts, named, strict=True)]
    fit = [(ids, task) for ids, task in encoded if ids and len(ids) + given["new"] + 16 <= context]
    if not fit:
        raise ConfigurationError(
            f"no prompt of {given['data']} fits the context of {context} with {given['new']} new tokens; "
            "use shorter prompts, or fewer new tokens."
        )
    if len(fit) < len(texts):
        click.echo(f"{len(texts) - len(fit)} of {len(texts)} prompts do not fit and are skipped", err=True)
    return [ids for ids, _ in fit], [task for _, task in fit]


def _tasks(data: Path, texts: Sequence[str]) -> list[str]:
    """Return the task of each prompt: that of its row, else the router's classification."""
    from specclient.routing.choose.task_classifier import classify_task, summarize_prompt  # noqa: PLC0415 - used only here
    from specclient.types.inference_methods import COMPLETION  # noqa: PLC0415
    from specclient.types.request import Request  # noqa: PLC0415

    lines = [line for line in data.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows: list[Any] = []
    if len(lines) >= len(texts) and lines[0].lstrip().startswith("{"):
        rows = [json.loads(line) for line in lines[: len(texts)]]
    own = [row.get("task") for row in rows] or [None] * len(texts)
    return [
        str(task) if task else classify_task(summarize_prompt(Request(COMPLETION, params={"prompt": text})))
        for task, text in zip(own, texts, strict=True)
    ]
