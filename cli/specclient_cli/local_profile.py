"""Turn a run into where its time went and what its passes cost: ``specclient local profile``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from specclient_local.params import ENGINE_METHODS

from specclient_cli import local_pair, options, render
from specclient_cli.local_pair import milliseconds
from specclient_cli.state import State, pass_state

if TYPE_CHECKING:
    from specclient_local.measure.passes import Pass
    from specclient_local.measure.runs import Run
    from specclient_local.measure.stages import Stage
    from specclient_local.params import Parameters


@click.command(name="profile")
@local_pair.model_options
@click.option(
    "--method",
    type=click.Choice(ENGINE_METHODS),
    help="What is profiled. Default: by heads if there are any, else by the draft, else plain.",
)
@local_pair.draft_length_option
@local_pair.prompt_options(128)
@local_pair.batch_option
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """See where a round's time goes, and what passes cost.

    Answers prompts greedily, once to warm up and once watched. Stages do not overlap: what one calls counts
    to that one alone, so they add up to the whole. Then the target's pass is timed by rows (a verification of
    K guesses has K + 1) and by tokens before it, and the draft's beside it.

    \b
    Examples:
      specclient local profile
      specclient local profile --method plain --batch 8
      specclient local profile --json | jq '.stages[] | {name, share}'

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    models = local_pair.pair(state, given)
    params: Parameters = {"max_tokens": given["new"], "temperature": 0.0}
    if given["draft_length"] is not None:
        params["draft_length"] = given["draft_length"]
    if given["method"] is not None:
        params["method"] = given["method"]
    with local_pair.progress() as told:
        from specclient_local.measure.passes import passes  # noqa: PLC0415 - import torch
        from specclient_local.measure.stages import STAGES, profile  # noqa: PLC0415

        with models.load(given["batch"], prefix_cache=False) as engine:
            prompts = local_pair.prompts_of(engine, given)
            told("answering …")
            run, stages = profile(engine, prompts, params, batch=given["batch"])
            told("timing passes …")
            timed = passes(engine)
    if given["as_json"]:
        click.echo(json.dumps(_values(models, run, stages, timed)))
        return
    render.say(local_pair.heading(models, engine, prompts, given["new"]), render.HEADING)
    _show_stages(run, stages, STAGES)
    click.echo()
    _show_passes(timed)
    positions = by_position(run)
    if positions:
        click.echo()
        told_shares = "  ".join(f"{i}: {share:.0%}" for i, share in enumerate(positions, 1))
        render.say(f"accepted by position, of drafts that reach it  {told_shares}")


def by_position(run: Run) -> list[float]:
    """Return for each draft position the share of drafts reaching it that was kept up to it."""
    told = [answer.generation.speculation for answer in run.answers]
    weighed = [(one.per_position or (), one.steps or 0) for one in told]
    shares: list[float] = []
    for i in range(max((len(own) for own, _ in weighed), default=0)):
        known = [(own[i], steps) for own, steps in weighed if i < len(own)]
        shares.append(sum(share * steps for share, steps in known) / sum(steps for _, steps in known))
    return shares


def _values(
    models: local_pair.Pair, run: Run, stages: Sequence[Stage], timed: Sequence[Pass]
) -> dict[str, Any]:
    return {
        **models.values,
        "tokens": run.tokens,
        "rounds": run.steps,
        "seconds": run.seconds,
        "tokens_per_s": run.tokens_per_s,
        "acceptance_rate": run.acceptance_rate,
        "mean_accepted_length": run.mean_accepted_length,
        "acceptance_by_position": by_position(run),
        "stages": [asdict(stage) for stage in stages],
        "passes": [asdict(one) for one in timed],
    }


def _show_stages(run: Run, stages: Sequence[Stage], told: dict[str, str]) -> None:
    columns = [
        render.Column("stage"),
        render.Column("share", right=True),
        render.Column("a round", right=True),
        render.Column("a call", right=True, rank=2),
        render.Column("calls", right=True, rank=1),
        render.Column("what it is", rank=3),
    ]
    rounds = max(run.steps, 1)
    lines = [
        render.Line(
            [
                stage.name,
                f"{stage.share:.1%}",
                milliseconds(stage.seconds / rounds),
                milliseconds(stage.seconds / stage.calls),
                str(stage.calls),
                told[stage.name],
            ]
        )
        for stage in stages
    ]
    render.grid(columns, lines)
    render.say(
        f"{run.steps} rounds, {run.tokens} tokens, {run.tokens_per_s:.1f} tokens/s watched", render.DIM
    )


def _show_passes(timed: Sequence[Pass]) -> None:
    contexts = list(dict.fromkeys(one.context for one in timed))
    seconds = {(one.model, one.rows, one.context): one.seconds for one in timed}
    columns = [
        render.Column("pass"),
        render.Column("rows", right=True),
        *(render.Column(f"after {context} tokens", right=True, rank=i) for i, context in enumerate(contexts)),
    ]
    lines = [
        render.Line([model, str(rows), *(milliseconds(seconds.get((model, rows, at))) for at in contexts)])
        for model, rows in dict.fromkeys((one.model, one.rows) for one in timed)
    ]
    render.grid(columns, lines)
