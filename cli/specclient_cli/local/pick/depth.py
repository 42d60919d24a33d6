"""``specclient local pick-depth``: the fastest draft length."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.engine_options import format_number
from specclient_cli.local.model_pair import model_pair

if TYPE_CHECKING:
    from specclient_local.measure.depth_sweep import DepthSweep
    from specclient_local.request.params import Method


@click.command(name="pick-depth")
@engine_options.model_options
@click.option(
    "--method",
    type=click.Choice(["draft", "layer_skip"]),
    help="Drafting method. Default: the first --draft, or the layers of --layer-skip.",
)
@click.option(
    "--lengths",
    type=engine_options.CountList(0, 10),
    default="0-10",
    show_default=True,
    metavar="K,…",
    help="Draft lengths to try.",
)
@click.option(
    "--batch",
    "batches",
    type=engine_options.CountList(1, 64),
    default="1",
    show_default=True,
    metavar="N,…",
    help="Numbers of prompts answered concurrently; each number gets its own table.",
)
@engine_options.prompt_options(64)
@engine_options.repeat_option
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Find the fastest draft length on this machine.

    The command answers prompts greedily with each draft length K in turn; K = 0 is plain decoding. α is the
    acceptance rate over all drafted tokens, c the cost of a draft pass in plain steps. 'closed form' is
    (1 − α^(K+1)) / ((1 − α)(Kc + 1)). 'expected' replaces the last 1 by the measured cost of a verification
    of K + 1 rows. 'measured' is the median of the ratios to plain decoding in the same turn, without prefill.

    \b
    Examples:
      specclient local pick-depth
      specclient local pick-depth --batch 1,4,8 --lengths 0-6
      specclient local pick-depth --model ./big --draft ./small --json

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    models = model_pair(state, given)
    method: Method = given["method"] or ("layer_skip" if given["layer_skip"] else "draft")
    if method == "draft" and not models.drafts:
        raise click.UsageError("there is no draft model; give one with --draft, or use --layer-skip.")
    batches = given["batches"]
    with engine_options.progress() as report:
        from specclient_local.measure.depth_sweep import sweep_depths  # noqa: PLC0415 - imports torch

        with models.load(max(batches), prefix_cache=False) as engine:
            prompts = engine_options.prompts_of(engine, given)
            tables = [
                sweep_depths(
                    engine,
                    prompts,
                    method=method,
                    lengths=given["lengths"],
                    new=given["new"],
                    batch=batch,
                    repeat=given["repeat"],
                    on_progress=report,
                )
                for batch in batches
            ]
    if given["as_json"]:
        values = {
            **models.values,
            "method": method,
            "threads": engine.threads,
            "prompts": len(prompts),
            "new": given["new"],
            "batches": [_values(table) for table in tables],
        }
        click.echo(json.dumps(values))
        return
    render.print_paragraph(engine_options.run_heading(models, engine, prompts, given["new"]), render.HEADING)
    for table in tables:
        _show(table)


def _values(table: DepthSweep) -> dict[str, Any]:
    return {**asdict(table), "best": table.best.length, "best_expected": table.best_expected.length}


def _show(table: DepthSweep) -> None:
    columns = [
        render.TableColumn("K", right=True),
        render.TableColumn("tokens/s", right=True),
        render.TableColumn("measured", right=True),
        render.TableColumn("expected", right=True),
        render.TableColumn("closed form", right=True, rank=1),
        render.TableColumn("tokens/pass", right=True, rank=2),
        render.TableColumn("α", right=True, rank=3),
    ]
    lines = [
        render.TableRow(
            [
                str(row.length),
                f"{row.tokens_per_s:.1f}",
                f"{row.measured:.2f}×",
                f"{row.expected:.2f}×",
                f"{row.closed_form:.2f}×",
                f"{row.mean_accepted_length:.2f}",
                format_number(row.alpha),
            ],
            style=render.GOOD if row is table.best else "",
        )
        for row in table.rows
    ]
    click.echo()
    at_once = f"{table.batch} prompt{'' if table.batch == 1 else 's'} at a time"
    render.print_paragraph(f"{at_once}: α = {table.alpha:.2f}, c = {table.cost:.3f}", "bold")
    render.print_table(columns, lines)
    best = table.best
    verdict = f"K = {best.length} is fastest, {best.measured:.2f}× plain decoding"
    if not best.length:
        verdict = "drafting is slower on this machine; use plain decoding"
    if table.best_expected.length != best.length:
        verdict += f"; the cost model expects K = {table.best_expected.length}"
    render.print_paragraph(verdict, render.GOOD)
