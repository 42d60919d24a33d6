"""``specclient local bench``: the speed of decoding methods on this machine."""

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
from specclient_cli.local.model_pair import model_pair

if TYPE_CHECKING:
    from specclient_local.measure.bench import MethodResult
    from specclient_local.request.params import Parameters


@click.command(name="bench")
@engine_options.model_options
@click.option(
    "--methods",
    type=engine_options.MethodList(),
    metavar="NAME,…",
    help="Methods to measure, in addition to plain. Default: all that these models support.",
)
@engine_options.draft_length_option
@engine_options.prompt_options(128)
@engine_options.repeat_option
@engine_options.batch_option
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Compare the speed of decoding methods on your prompts.

    All methods answer the same prompts greedily, in turns, after one warm-up turn. The speed-up is the median
    of the ratios to plain decoding in the same turn. In float32, the command fails if a method generates
    other tokens than plain decoding.

    'expected' is the closed form for chains, (1 − α^(K+1)) / ((1 − α)(Kc + 1)), where α is the acceptance
    rate that corresponds to the measured tokens per pass, K the number of drafted tokens per pass, and c
    the cost of a draft pass in plain steps.

    \b
    Examples:
      specclient local bench
      specclient local bench --methods draft --draft-length 4
      specclient local bench --model ./big --draft ./small --prompts my.jsonl
      specclient local bench --batch 8 --json | jq '.rows[].tokens_per_s'

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    models = model_pair(state, given)
    params: Parameters = {"max_tokens": given["new"], "temperature": 0.0}
    if given["draft_length"] is not None:
        params["draft_length"] = given["draft_length"]
    with engine_options.progress() as report:
        from specclient_local.measure.bench import bench  # noqa: PLC0415 - imports torch

        with models.load(given["batch"], prefix_cache=False) as engine:
            prompts = engine_options.prompts_of(engine, given)
            methods = given["methods"] or [name for name in engine.methods if name != "prediction"]
            rows = bench(
                engine,
                prompts,
                methods,
                params,
                batch=given["batch"],
                repeat=given["repeat"],
                on_progress=report,
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
        render.TableColumn("tokens/pass", right=True, rank=3),
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
    """Print the methods that generated other tokens than plain decoding.

    Rounding can cause this in half precision.

    Raises:
        EngineError: it happened in float32.
    """
    differing = ", ".join(row.method for row in rows if not row.identical)
    if not differing:
        return
    if dtype == "float32":
        raise EngineError(
            f"{differing} generated other tokens than plain decoding; decoding is not exact on this machine, "
            "please report it with your torch version"
        )
    click.echo(f"{differing}: other tokens than plain decoding, because of rounding in {dtype}", err=True)
