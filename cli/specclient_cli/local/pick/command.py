"""``specclient local pick``: choose among drafts for a target by measuring them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from specclient_local.model.config import DTYPES, short_name

from specclient.errors import ConfigurationError
from specclient.types.criterion import PromptTask
from specclient_cli.common import options, parameter_types
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.pick.config_tables import write_pair_tables

if TYPE_CHECKING:
    from specclient_local.measure.pick.candidates import DraftCandidate
    from specclient_local.measure.pick.selection import CandidateResult, PickResult
from specclient_cli.local.pick.display import print_result, result_values, speedup_bars
from specclient_cli.local.pick.inputs import prepare


class CandidateList(parameter_types.ParameterType):
    """Names separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        return tuple(dict.fromkeys(names)) or self.fail(
            "give at least one candidate, such as ngram.", param, ctx
        )


@click.command(name="pick")
@click.option("--target", "-m", default="demo", show_default=True, help="'demo', a folder, or a hub id.")
@click.option(
    "--candidates",
    type=CandidateList(),
    metavar="NAME,…",
    help="Candidates: methods without a model, such as ngram; layer_skip or layer_skip:N (the target's first "
    "N layers); and folders or hub ids of drafts and of Medusa, EAGLE or P-EAGLE heads. The heads for demo "
    "are bundled:eagle3 and bundled:medusa. Default: the configured drafts of the target, the methods "
    "without a model and, if the engine's own decoder runs the target, layer_skip.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='File with one object like {"prompt": "…", "task": "…"} per line. The router classifies '
    "prompts without a task. Default: source code that the bundled models were not trained on.",
)
@click.option("--count", type=click.IntRange(min=1), default=8, show_default=True, help="Number of prompts.")
@click.option(
    "--new", type=click.IntRange(min=2), default=64, show_default=True, help="New tokens per answer."
)
@click.option(
    "--depth",
    type=click.IntRange(1, 10),
    default=6,
    show_default=True,
    help="Drafted tokens per round while acceptance is measured; also the maximum depth to choose.",
)
@click.option(
    "--temperature",
    type=parameter_types.NonNegativeFloat(),
    default=0.0,
    show_default=True,
    help="Sampling temperature of the answers; 0 is greedy.",
)
@engine_options.repeat_option
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:N or mps.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Data type of computation.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Number of CPU threads. Default: as configured, or 1 for a small model.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a chart to this PNG file; requires matplotlib.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the best candidate to this configuration file: a [local.models.NAME] table and, for a draft "
    "model, a [pairs.NAME] table. The rest of the file stays as it is.",
)
@click.option("--name", default="picked", show_default=True, help="NAME of the tables that --write adds.")
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Choose among drafts for a target by measuring them.

    For each candidate, the command measures the acceptance rate by draft position and by kind of prompt, and
    the cost of its passes relative to the target's. From these it computes the expected speed-up and the
    break-even, which is the lowest acceptance rate that pays. It then measures the best two candidates in
    turns with plain decoding, as chains and as trees. A candidate below its break-even is rejected.

    \b
    Examples:
      specclient local pick
      specclient local pick --candidates bundled:eagle3,bundled:medusa,ngram
      specclient local pick -m ./big --candidates ./small,./eagle3,ngram
      specclient local pick --write specclient.toml --name code --save pick.png

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    if given["save"] is not None:
        _check_matplotlib()
    with engine_options.progress() as report:
        from specclient_local.measure.pick.selection import pick  # noqa: PLC0415 - imports torch

        target, candidates, settings, load = prepare(state, given)
        result = pick(candidates, load, settings, on_progress=report)
    if given["as_json"]:
        click.echo(json.dumps(result_values(result, target, settings)))
    else:
        print_result(result, target, settings)
    if given["save"] is not None:
        from specclient_cli.local.pick.chart import draw_chart  # noqa: PLC0415 - imports matplotlib

        draw_chart(result, speedup_bars(result), given["save"])
        click.echo(f"wrote {given['save']}", err=True)
    if given["write"] is not None:
        _write(result, candidates, target, given)


def _write(
    result: PickResult, candidates: Sequence[DraftCandidate], target: str, given: dict[str, Any]
) -> None:
    """Write the best candidate to a configuration file.

    Raises:
        ConfigurationError: no candidate is faster, or the file cannot be read or written.
    """
    from specclient_local.measure.pick.selection import rejection_reason  # noqa: PLC0415

    best = result.best
    if best is None:
        reasons = "; ".join(
            f"{short_name(one.name)}: {rejection_reason(one)}"
            for one in result.results
            if rejection_reason(one)
        )
        raise ConfigurationError(
            f"nothing is written to {given['write']}: {reasons or 'no candidate is faster'}."
        )
    loading = next(each.load_options for each in candidates if each.name == best.name)
    drafting = {**loading, "method": best.method, **_depth(result, best)}
    by_task = {task: round(alpha, 3) for task, alpha in best.by_task.items() if task in get_args(PromptTask)}
    measured: dict[str, Any] = {"acceptance": by_task or round(best.alpha, 3)}
    measured["cost_ratio"] = round(best.cost, 4)
    written = write_pair_tables(given["write"], given["name"], target, drafting, measured)
    name = f"local/{given['name']}"
    click.echo(f"wrote {', '.join(written)} to {given['write']}", err=True)
    click.echo(f"use it as {name!r}; add {name!r} to candidates so that 'auto' can choose it", err=True)


def _depth(result: PickResult, best: CandidateResult) -> dict[str, Any]:
    """Return the draft length or tree; nothing if the engine chooses it in each round."""
    if result.widths is None:
        return {}
    if max(result.widths) == 1:
        return {"draft_length": best.depth}
    return {"draft_tree": list(result.widths)}


def _check_matplotlib() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - used only here

    if find_spec("matplotlib") is None:
        raise ConfigurationError(
            "--save requires matplotlib, which is not installed: pip install matplotlib."
        )
