"""``specclient local profile``: the time of stages and of model passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from specclient_local.request.params import ENGINE_METHODS

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.engine_options import format_milliseconds
from specclient_cli.local.model_pair import LocalModelPair, model_pair

if TYPE_CHECKING:
    from specclient_local.measure.pass_timing import PassTiming
    from specclient_local.measure.stage_profile import StageTime
    from specclient_local.measure.timed_runs import TimedRun
    from specclient_local.request.params import Parameters


@click.command(name="profile")
@engine_options.model_options
@click.option(
    "--method",
    type=click.Choice(ENGINE_METHODS),
    help="Method to profile. Default: as configured, else heads if there are any, else the draft, else "
    "plain.",
)
@engine_options.draft_length_option
@engine_options.prompt_options(128)
@engine_options.batch_option
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Show the time of each stage of a round, and of model passes.

    The command answers prompts greedily, once to warm up and once with the profiler. Stages do not overlap:
    time in a nested stage counts only for that one, so the stages add up to the total. Then it measures
    passes of the target and of the draft by the number of rows (a verification of K tokens has K + 1) and
    by the length of the context.

    \b
    Examples:
      specclient local profile
      specclient local profile --method plain --batch 8
      specclient local profile --json | jq '.stages[] | {name, share}'

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    models = model_pair(state, given)
    params: Parameters = {"max_tokens": given["new"], "temperature": 0.0}
    if given["draft_length"] is not None:
        params["draft_length"] = given["draft_length"]
    if given["method"] is not None:
        params["method"] = given["method"]
    with engine_options.progress() as report:
        from specclient_local.measure.pass_timing import time_passes  # noqa: PLC0415 - import torch
        from specclient_local.measure.stage_profile import STAGES, profile_stages  # noqa: PLC0415

        with models.load(given["batch"], prefix_cache=False) as engine:
            prompts = engine_options.prompts_of(engine, given)
            report("answering …")
            run, stages = profile_stages(engine, prompts, models.with_defaults(params), batch=given["batch"])
            report("measuring passes …")
            timed = time_passes(engine)
    if given["as_json"]:
        click.echo(json.dumps(_values(models, run, stages, timed)))
        return
    render.print_paragraph(engine_options.run_heading(models, engine, prompts, given["new"]), render.HEADING)
    _show_stages(run, stages, STAGES)
    click.echo()
    _show_passes(timed)
    positions = acceptance_by_position(run)
    if positions:
        click.echo()
        shares = "  ".join(f"{i}: {share:.0%}" for i, share in enumerate(positions, 1))
        render.print_paragraph(f"acceptance rate by draft position  {shares}")


def acceptance_by_position(run: TimedRun) -> list[float]:
    """Return the share of drafts accepted up to each position, of the drafts that reach it."""
    stats = [answer.generation.speculation for answer in run.answers]
    weighed = [(one.per_position or (), one.steps or 0) for one in stats]
    shares: list[float] = []
    for i in range(max((len(own) for own, _ in weighed), default=0)):
        known = [(own[i], steps) for own, steps in weighed if i < len(own)]
        shares.append(sum(share * steps for share, steps in known) / sum(steps for _, steps in known))
    return shares


def _values(
    models: LocalModelPair,
    run: TimedRun,
    stages: Sequence[StageTime],
    timed: Sequence[PassTiming],
) -> dict[str, Any]:
    return {
        **models.values,
        "tokens": run.tokens,
        "rounds": run.steps,
        "seconds": run.seconds,
        "tokens_per_s": run.tokens_per_s,
        "acceptance_rate": run.acceptance_rate,
        "mean_accepted_length": run.mean_accepted_length,
        "acceptance_by_position": acceptance_by_position(run),
        "stages": [asdict(stage) for stage in stages],
        "passes": [asdict(one) for one in timed],
    }


def _show_stages(run: TimedRun, stages: Sequence[StageTime], descriptions: dict[str, str]) -> None:
    columns = [
        render.TableColumn("stage"),
        render.TableColumn("share", right=True),
        render.TableColumn("per round", right=True),
        render.TableColumn("per call", right=True, rank=2),
        render.TableColumn("calls", right=True, rank=1),
        render.TableColumn("description", rank=3),
    ]
    rounds = max(run.steps, 1)
    lines = [
        render.TableRow(
            [
                stage.name,
                f"{stage.share:.1%}",
                format_milliseconds(stage.seconds / rounds),
                format_milliseconds(stage.seconds / stage.calls),
                str(stage.calls),
                descriptions[stage.name],
            ]
        )
        for stage in stages
    ]
    render.print_table(columns, lines)
    render.print_paragraph(
        f"{run.steps} rounds, {run.tokens} tokens, {run.tokens_per_s:.1f} tokens/s with the profiler",
        render.DIM,
    )


def _show_passes(timed: Sequence[PassTiming]) -> None:
    contexts = list(dict.fromkeys(one.context for one in timed))
    seconds = {(one.model, one.rows, one.context): one.seconds for one in timed}
    columns = [
        render.TableColumn("pass"),
        render.TableColumn("rows", right=True),
        *(
            render.TableColumn(f"after {context} tokens", right=True, rank=i)
            for i, context in enumerate(contexts)
        ),
    ]
    lines = [
        render.TableRow(
            [model, str(rows), *(format_milliseconds(seconds.get((model, rows, at))) for at in contexts)]
        )
        for model, rows in dict.fromkeys((one.model, one.rows) for one in timed)
    ]
    render.print_table(columns, lines)
