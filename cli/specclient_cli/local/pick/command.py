"""Turn what may draft for a target into the one to deploy: ``specclient local pick``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from specclient_local.model.config import DTYPES

from specclient.errors import ConfigurationError
from specclient.types.criterion import PromptTask
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.engine_options import format_number, short_name
from specclient_cli.local.pick.config_tables import write_pair_tables

if TYPE_CHECKING:
    from specclient_local.loading.configured_models import ConfiguredModel
    from specclient_local.measure.pick.candidates import DraftCandidate
    from specclient_local.measure.pick.selection import CandidateResult, PickResult, PickSettings

_BAR = 24
"""Letters of the longest bar."""


class CandidateList(options.ParameterType):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        return tuple(dict.fromkeys(names)) or self.fail("name what may draft, such as ngram.", param, ctx)


@click.command(name="pick")
@click.option("--target", "-m", default="demo", show_default=True, help="'demo', a folder, or a hub id.")
@click.option(
    "--candidates",
    type=CandidateList(),
    metavar="NAME,…",
    help="What may draft: ngram, layer_skip or layer_skip:N (so many of the target's first layers), and "
    "folders or hub ids of drafts and of Medusa or EAGLE heads. Those of demo are bundled:eagle3 and "
    "bundled:medusa. Default: what is configured with the "
    "target's name, ngram, and layer_skip where the own decoder runs the target.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Prompts: a file with an object like {"prompt": "…", "task": "…"} a line. Without tasks the '
    "router's own are taken. Default: source code that the bundled pair was not trained on.",
)
@click.option("--count", type=click.IntRange(min=1), default=8, show_default=True, help="Prompts of it.")
@click.option("--new", type=click.IntRange(min=2), default=64, show_default=True, help="Tokens of an answer.")
@click.option(
    "--depth",
    type=click.IntRange(1, 10),
    default=6,
    show_default=True,
    help="Guesses a round while acceptance is counted, and the deepest that is considered.",
)
@click.option(
    "--temperature",
    type=options.NonNegativeFloat(),
    default=0.0,
    show_default=True,
    help="Of the answers; 0 is greedy.",
)
@engine_options.repeat_option
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:N or mps.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="To compute in."
)
@click.option("--threads", type=click.IntRange(min=1), help="Default: as configured, or 1 for a small model.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the chart into this PNG file, too; needs matplotlib.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the choice to this configuration: a [local.models.NAME] table and, for a draft model, its "
    "[pairs.NAME]. All else in the file stays as it is.",
)
@click.option("--name", default="picked", show_default=True, help="NAME of the tables of --write.")
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Choose among drafts of a target, before they are deployed.

    Counts for each candidate how often its guesses are kept, place by place and by kind of prompt, and takes
    what its passes cost beside the target's; from these follow the speed-up to expect and the break-even, the
    least acceptance that pays. The best two are then timed in turns with plain decoding, as chains and as
    trees. A candidate under its break-even is refused.

    \b
    Examples:
      specclient local pick
      specclient local pick --candidates bundled:eagle3,bundled:medusa,ngram
      specclient local pick -m ./big --candidates ./small,./eagle3,ngram
      specclient local pick --write specclient.toml --name code --save pick.png

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    if given["save"] is not None:
        _drawable()
    with engine_options.progress() as told:
        from specclient_local.measure.pick.selection import pick  # noqa: PLC0415 - imports torch

        target, candidates, asked, load = _prepared(state, given)
        found = pick(candidates, load, asked, told=told)
    if given["as_json"]:
        click.echo(json.dumps(_values(found, target, asked)))
    else:
        _show(found, target, asked)
    if given["save"] is not None:
        from specclient_cli.local.pick.chart import draw_chart  # noqa: PLC0415 - imports matplotlib

        draw_chart(found, given["save"])
        click.echo(f"wrote {given['save']}", err=True)
    if given["write"] is not None:
        _write(found, candidates, target, given)


def _prepared(state: State, given: dict[str, Any]) -> tuple[str, list[DraftCandidate], PickSettings, Any]:
    """Return the target, the candidates, what they are measured on, and what loads them."""
    from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch
    from specclient_local.loading.configured_models import read_configured_models  # noqa: PLC0415
    from specclient_local.loading.model_loader import read_any_config  # noqa: PLC0415
    from specclient_local.measure.pick.candidates import candidate  # noqa: PLC0415
    from specclient_local.measure.pick.selection import PickSettings  # noqa: PLC0415
    from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415
    from specclient_local.model.weights import resolve_checkpoint  # noqa: PLC0415

    settings = state.settings().local
    row = read_configured_models(settings.model_dump()).get(str(given["target"]).removeprefix("local/"))
    target = given["target"] if row is None else row.path
    folder = resolve_checkpoint(target)
    context = min(read_any_config(folder).context, 4096)
    prompts, tasks = _prompts(Tokenizer(folder), given, context)
    names = given["candidates"] or _known(row, folder)
    longest = max(map(len, prompts)) + given["new"]
    where = {name: given[name] for name in ("device", "dtype")}
    candidates = [candidate(name, folder, context=longest, **where) for name in names]
    fixed = {
        **where,
        "threads": given["threads"] or settings.threads,
        "prefix_cache": False,
        "slots": 1,
        "context": min(context, longest + 16),
    }

    def load(each: DraftCandidate) -> Engine:
        return Engine.load(folder, **{**fixed, **each.loading})

    asked = PickSettings(prompts, tasks, given["new"], given["depth"], given["temperature"], given["repeat"])
    return target, candidates, asked, load


def _known(row: ConfiguredModel | None, folder: Path) -> tuple[str, ...]:
    """Return what may draft for a target without being named."""
    from specclient_local.loading.model_loader import uses_own_decoder  # noqa: PLC0415 - imports torch

    drafts = row.options.draft if row is not None else ()
    return (*drafts, "ngram", *(("layer_skip",) if uses_own_decoder(folder, "auto") else ()))


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
            f"no prompt of {given['data']} fits the context of {context} with {given['new']} new tokens; use "
            "shorter ones, or fewer new tokens."
        )
    if len(fit) < len(texts):
        click.echo(f"{len(texts) - len(fit)} of {len(texts)} prompts do not fit and are left out", err=True)
    return [ids for ids, _ in fit], [task for _, task in fit]


def _tasks(data: Path, texts: Sequence[str]) -> list[str]:
    """Return the task of each prompt: its row's own, else what the router would take it for."""
    from specclient.routing.choose.task_classifier import classify_task, summarize_prompt  # noqa: PLC0415 - for this alone
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


def _values(found: PickResult, target: str, asked: PickSettings) -> dict[str, Any]:
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    best = found.best
    return {
        "target": target,
        "prompts": len(asked.prompts),
        "new": asked.new,
        "candidates": [{**asdict(one), "refused": rejection_reason(one)} for one in found.fared],
        "recommended": None
        if best is None
        else {
            "candidate": best.name,
            "method": best.method,
            "depth": best.depth,
            "tree": None if found.widths is None else list(found.widths),
            "speed_up": found.speed_up,
        },
    }


def _show(found: PickResult, target: str, asked: PickSettings) -> None:
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    render.print_paragraph(
        f"{short_name(target)} · {len(asked.prompts)} prompts, {asked.new} new tokens each", render.HEADING
    )
    render.print_table(_COLUMNS, [_line(one, found) for one in found.fared])
    click.echo()
    _bars(found)
    click.echo()
    for one in found.fared:
        told = rejection_reason(one)
        if told is not None:
            render.print_paragraph(f"refused: {short_name(one.name)}: {told}", render.BAD)
    render.print_paragraph(_verdict(found), render.GOOD if found.best else render.BAD)


_COLUMNS = (
    render.TableColumn("candidate"),
    render.TableColumn("method", rank=2),
    render.TableColumn("α", right=True),
    render.TableColumn("break-even", right=True),
    render.TableColumn("by position", rank=4),
    render.TableColumn("by task", rank=5),
    render.TableColumn("c", right=True, rank=1),
    render.TableColumn("memory", right=True, rank=3),
    render.TableColumn("K", right=True),
    render.TableColumn("expected", right=True),
    render.TableColumn("closed form", right=True, rank=3),
    render.TableColumn("measured", right=True),
)


def _line(one: CandidateResult, found: PickResult) -> render.TableRow:
    measured = max(one.measured.values(), default=None)
    return render.TableRow(
        [
            short_name(one.name),
            one.method,
            format_number(one.alpha),
            format_number(one.break_even),
            " ".join(f"{share:.2f}" for share in one.by_position),
            " ".join(f"{task} {alpha:.2f}" for task, alpha in one.by_task.items()),
            format_number(one.cost, ".3f"),
            f"{one.memory / 1e6:.1f} MB",
            str(one.depth),
            f"{one.expected:.2f}×",
            f"{one.closed_form:.2f}×",
            render.UNKNOWN if measured is None else f"{measured:.2f}×",
        ],
        style=render.GOOD if one is found.best else "" if one.worth else render.DIM,
    )


def speedup_bars(found: PickResult) -> list[tuple[str, float]]:
    """Return what a chart shows: names with speed-ups, as timed or else as expected."""
    shown = [("plain", 1.0)]
    for one in found.fared:
        name = short_name(one.name)
        timed = [(f"{name} {way}", ratio) for way, ratio in one.measured.items()]
        shown += timed or [(f"{name} expected", one.expected)]
    return shown


def _bars(found: PickResult) -> None:
    shown = speedup_bars(found)
    longest = max(ratio for _, ratio in shown)
    lines = [
        render.TableRow([name, "█" * max(1, round(_BAR * ratio / longest)), f"{ratio:.2f}×"])
        for name, ratio in shown
    ]
    render.print_table(
        (render.TableColumn(""), render.TableColumn("speed-up"), render.TableColumn("", right=True)), lines
    )


def _verdict(found: PickResult) -> str:
    best = found.best
    if best is None:
        return "decode plainly: no candidate is faster here"
    if found.widths is None:
        how = f"depth and tree chosen round by round (best chain: {best.depth})"
    else:
        tree = ",".join(map(str, found.widths))
        how = f"depth {best.depth}, " + ("a chain" if max(found.widths) == 1 else f"tree widths {tree}")
    return (
        f"take {short_name(best.name)} ({best.method}), {how}: {found.speed_up:.2f}× plain decoding as timed"
    )


def _write(
    found: PickResult, candidates: Sequence[DraftCandidate], target: str, given: dict[str, Any]
) -> None:
    """Write the choice into a configuration.

    Raises:
        ConfigurationError: no candidate is to be taken, or the file cannot be read or written.
    """
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    best = found.best
    if best is None:
        told = "; ".join(
            f"{short_name(one.name)}: {rejection_reason(one)}" for one in found.fared if rejection_reason(one)
        )
        raise ConfigurationError(f"nothing is written to {given['write']}: {told or 'none was faster'}.")
    loading = next(each.loading for each in candidates if each.name == best.name)
    drafting = {**loading, "method": best.method, **_depth(found, best)}
    by_task = {task: round(alpha, 3) for task, alpha in best.by_task.items() if task in get_args(PromptTask)}
    measured: dict[str, Any] = {"acceptance": by_task or round(best.alpha, 3)}
    measured["cost_ratio"] = round(best.cost, 4)
    written = write_pair_tables(given["write"], given["name"], target, drafting, measured)
    name = f"local/{given['name']}"
    click.echo(f"wrote {', '.join(written)} to {given['write']}", err=True)
    click.echo(f"use it as {name!r}; put {name!r} among candidates for 'auto' to choose it", err=True)


def _depth(found: PickResult, best: CandidateResult) -> dict[str, Any]:
    """Return how far the choice drafts; nothing where the engine is to choose round by round."""
    if found.widths is None:
        return {}
    if max(found.widths) == 1:
        return {"draft_length": best.depth}
    return {"draft_tree": list(found.widths)}


def _drawable() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - for a chart alone

    if find_spec("matplotlib") is None:
        raise ConfigurationError(
            "--save draws with matplotlib, which is not installed; pip install matplotlib."
        )
