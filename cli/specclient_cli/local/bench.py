"""Turn methods of decoding into a table of their figures on one machine: ``specclient local bench``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import EngineError
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local import engine_options
from specclient_cli.local.engine_options import format_milliseconds, format_number

if TYPE_CHECKING:
    from specclient_local.measure.bench import MethodResult
    from specclient_local.request.params import Parameters


@click.command(name="bench")
@engine_options.model_options
@click.option(
    "--methods",
    type=engine_options.MethodList(),
    metavar="NAME,…",
    help="Methods to time; plain is always among them. Default: all that these models can.",
)
@engine_options.draft_length_option
@engine_options.prompt_options(128)
@engine_options.repeat_option
@engine_options.batch_option
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Time methods of decoding against each other, on your prompts.

    All methods answer the same prompts greedily, in turns, after one turn that only warms up. Speed-up is the
    median of the ratios to plain decoding of the same turn. In float32 every method must give the tokens of
    plain decoding, or the command fails.

    Expected is the closed form of chains, (1 − α^(K+1)) / ((1 − α)(Kc + 1)): α is the acceptance that wins
    the tokens a pass seen here, K the tokens drafted a pass, c a draft pass in plain steps.

    \b
    Examples:
      specclient local bench
      specclient local bench --methods draft --draft-length 4
      specclient local bench --model ./big --draft ./small --prompts my.jsonl
      specclient local bench --batch 8 --json | jq '.rows[].tokens_per_s'

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    models = engine_options.model_pair(state, given)
    params: Parameters = {"max_tokens": given["new"], "temperature": 0.0}
    if given["draft_length"] is not None:
        params["draft_length"] = given["draft_length"]
    with engine_options.progress() as told:
        from specclient_local.measure.bench import bench  # noqa: PLC0415 - imports torch

        with models.load(given["batch"], prefix_cache=False) as engine:
            prompts = engine_options.prompts_of(engine, given)
            methods = given["methods"] or [name for name in engine.methods if name != "prediction"]
            rows = bench(
                engine, prompts, methods, params, batch=given["batch"], repeat=given["repeat"], told=told
            )
    if given["as_json"]:
        values = {
            **models.values,
            "threads": engine.threads,
            "prompts": len(prompts),
            **{name: given[name] for name in ("new", "repeat", "batch", "draft_length")},
            "rows": [asdict(row) for row in rows],
        }
        click.echo(json.dumps(values))
    else:
        batch = f" · {given['batch']} at a time" if given["batch"] > 1 else ""
        render.print_paragraph(
            engine_options.run_heading(models, engine, prompts, given["new"]) + batch, render.HEADING
        )
        _show(rows)
    _must_agree(rows, str(models.options.get("dtype", "float32")))


def _show(rows: Sequence[MethodResult]) -> None:
    columns = [
        render.TableColumn("method"),
        render.TableColumn("tokens/s", right=True),
        render.TableColumn("speed-up", right=True),
        render.TableColumn("expected", right=True, rank=4),
        render.TableColumn("TTFT", right=True, rank=1),
        render.TableColumn("TPOT", right=True, rank=2),
        render.TableColumn("accepted", right=True),
        render.TableColumn("tokens a pass", right=True, rank=3),
        render.TableColumn("α", right=True, rank=5),
        render.TableColumn("c", right=True, rank=5),
    ]
    fastest = max(rows, key=lambda row: row.tokens_per_s)
    lines = [
        render.TableRow(
            [
                row.method,
                f"{row.tokens_per_s:.1f}",
                f"{row.speed_up:.2f}×",
                render.UNKNOWN if row.expected is None else f"{row.expected:.2f}×",
                format_milliseconds(row.ttft_s),
                format_milliseconds(row.tpot_s),
                format_number(row.acceptance_rate, ".0%"),
                f"{row.mean_accepted_length:.2f}",
                format_number(row.alpha),
                format_number(row.cost, ".3f"),
            ],
            style=render.GOOD if row is fastest else "",
        )
        for row in rows
    ]
    render.print_table(columns, lines)


def _must_agree(rows: Sequence[MethodResult], dtype: str) -> None:
    """Say which methods gave other tokens than plain decoding; rounding allows that in half precision.

    Raises:
        EngineError: they did in float32.
    """
    differing = ", ".join(row.method for row in rows if not row.identical)
    if not differing:
        return
    if dtype == "float32":
        raise EngineError(
            f"{differing} gave other tokens than plain decoding; decoding is not exact here, please report "
            "it with your torch version"
        )
    click.echo(f"{differing}: other tokens than plain decoding, by rounding in {dtype}", err=True)
