"""The command ``specclient route simulate``: a policy on past or simulated calls, compared to baselines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.types.criterion import CRITERIA
from specclient.types.policy import Policy
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.route.simulation_source import SimulationSource

if TYPE_CHECKING:
    from specclient.routing.simulate.comparison import Comparison
    from specclient.routing.simulate.results import ReplaySummary
    from specclient.routing.simulate.trace import Trace
    from specclient.routing.simulate.world import World

_COLUMNS = (
    render.TableColumn("router"),
    render.TableColumn("$/1,000", right=True),
    render.TableColumn("p50", right=True, rank=2),
    render.TableColumn("p95", right=True, rank=1),
    render.TableColumn("ttft p95", right=True, rank=3),
)
#: After the columns of the criteria that have no fields of their own.
_LAST_COLUMNS = (
    render.TableColumn("missed", right=True),
    render.TableColumn("unanswered", right=True, rank=4),
    render.TableColumn("regret", right=True, rank=2),
)
#: The number of a route's calls below which its results are uncertain.
_FEW = 30


@click.command(name="simulate")
@click.argument("trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.policy_options
@click.option(
    "--world",
    metavar="NAME",
    help="Simulate the hosts of this world: mixed. Its calls are drawn, or those of TRACE.",
)
@click.option(
    "--calls",
    type=click.IntRange(min=100),
    help="The number of simulated calls. Default: the world's own, or all of TRACE.",
)
@click.option(
    "--stretch",
    type=parameter_types.NonNegativeFloat(above_zero=True),
    help="Multiply the times of TRACE in a world: 20 makes an hour a day, at a twentieth of the rate.",
)
@click.option(
    "--skip-calls",
    type=click.IntRange(min=0),
    help="Leave out so many calls at the beginning of TRACE in a world.",
)
@click.option("--skip-invalid", is_flag=True, help="Skip invalid lines of TRACE in a world, and count them.")
@click.option(
    "--longest-gap",
    type=parameter_types.NonNegativeFloat(above_zero=True),
    metavar="SECONDS",
    help="Refuse a longer time between two calls of TRACE in a world; shorten it with --skip-invalid.",
)
@click.option(
    "--warm",
    type=click.IntRange(0, 20),
    default=0,
    show_default=True,
    help="Let the policy measure every route of a world by so many calls first, as `route warm` does.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random numbers.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the world's calls as a trace, with the outcome of each on every route.",
)
@options.json_option
@pass_state
def command(state: State, /, warm: int, as_json: bool, **given: Any) -> None:
    """Replay calls under a policy and compare it with fixed routes.

    The comparison includes every fixed route and two oracles. Nothing is sent.

    TRACE is a file of 'specclient cost export --format jsonl', or of lines such as
    {"at": 12.5, "task": "chat", "prompt_tokens": 900, "completion_tokens": 120, "outcomes":
    {"openai/gpt-4.1": {"latency_s": 2.1, "ttft_s": 0.3, "cost_usd": 0.003}}}. With --world, it is a source of
    arrivals and lengths: such a file, Azure's LLM inference trace (CSV) or Mooncake's (JSON lines), also
    compressed by gzip.

    The policy uses the code that routes live calls, and starts without any earlier calls but those of --warm.
    The outcome of a call on a route that did not serve it is drawn from the route's 15 calls nearest in time,
    of the same task if there are any. The oracle knows the state of every route at each moment, but not the
    outcome of a single call; the clairvoyant knows that too. 'missed' is the share of calls that did not keep
    their limits: the policy's, or the call's own. 'regret' is the loss of 1,000 choices against the oracle's,
    in dollars or in the policy's weighed sum.

    \b
    Examples:
      specclient route simulate --world mixed
      specclient cost export --format jsonl > calls.jsonl
      specclient route simulate calls.jsonl --minimize cost --max-latency 5
      specclient route simulate --world mixed --save calls.jsonl --json
      specclient route simulate azure.csv --world mixed --stretch 20

    Environment: SPECCLIENT_CONFIG (for --policy, and the addresses that --local-only permits).
    """
    from specclient.routing.simulate.comparison import compare  # noqa: PLC0415 - slow, and only needed here

    source = SimulationSource(**{name: given.pop(name) for name in SimulationSource._fields})
    source.check(warm=warm)
    settings = state.settings()
    policy = options.policy_of(settings, **given) or Policy()
    ground = source.scenario(state, settings)
    found = compare(ground, policy, seed=source.seed, warm=warm)
    if as_json:
        click.echo(json.dumps(_values(ground, found)))
    else:
        _show(ground, policy, found)


def _show(ground: World | Trace, policy: Policy, found: Comparison) -> None:
    """Print the table, and its main results in words."""
    hours = (ground.calls[-1].at - ground.calls[0].at) / 3600
    render.print_paragraph(
        f"{ground.name}: {len(ground.calls):,} calls in {hours:.1f} h, {len(ground.routes)} routes",
        render.HEADING,
    )
    best = found.best_fixed.name
    fixed = sorted(found.fixed, key=lambda each: each.cost)
    lines = [
        _line(found.policy, "the policy", render.GOOD),
        _line(found.oracle, "oracle"),
        _line(found.clairvoyant, "clairvoyant"),
        *(_line(each, f"always {each.name}{' *' if each.name == best else ''}") for each in fixed),
        *(_line(each, each.name, render.DIM) for each in found.others),
    ]
    added = [render.TableColumn(CRITERIA[name].title, right=True, rank=2) for name in found.policy.figures]
    render.print_table((*_COLUMNS, *added, *_LAST_COLUMNS), lines)
    render.print_paragraph()
    for sentence in _summary(ground, policy, found):
        render.print_paragraph(sentence)


def _line(each: ReplaySummary, name: str, style: str = "") -> render.TableRow:
    return render.TableRow(
        cells=(
            name,
            f"{1000 * each.cost:.3f}",
            f"{each.p50_s:.2f} s",
            f"{each.p95_s:.1f} s",
            f"{each.ttft_p95_s:.2f} s",
            *(render.UNKNOWN if v is None else CRITERIA[n].text(v) for n, v in each.figures.items()),
            f"{each.violations:.1%}",
            str(each.calls - each.answered),
            f"{1000 * each.regret:.3f}",
        ),
        style=style,
    )


def _summary(ground: World | Trace, policy: Policy, found: Comparison) -> list[str]:
    unmet = sum(not step.first for step in found.replays[found.policy.name].steps)
    sentences = [_unmet(policy, unmet, found.policy.calls)] if unmet else []
    if found.policy.answered:
        sentences += _comparison(ground, found)
    elif not unmet:
        sentences.append("Every route that the policy permits failed in every call; permit others.")
    return sentences


def _unmet(policy: Policy, unmet: int, calls: int) -> str:
    limits = [name for name in CRITERIA.bounds if policy.limit(name) is not None]
    return (
        f"No candidate met the policy for {unmet:,} of {calls:,} calls; relax "
        f"{', '.join(limits) or 'its limits'}, or add candidates."
    )


def _comparison(ground: World | Trace, found: Comparison) -> list[str]:
    mine, fixed = found.policy, found.best_fixed
    allowed = 1 - found.percentile
    sentences = [
        f"The policy costs {_relative(found.over_oracle, 'more', 'less')} than an oracle that keeps the "
        f"limits "
        f"equally often, and {_relative(-found.under_fixed, 'more', 'less')} than always {fixed.name} (*), "
        + (
            "the cheapest fixed route that keeps them."
            if fixed.over <= 0.02
            else "the fixed route that keeps them most often: none keeps them as required."
        ),
        f"{mine.violations:.1%} of its calls exceeded a limit; {allowed:.0%} were allowed to.",
    ]
    if found.warm_cost:
        sentences.append(f"The calls that measured every route beforehand cost ${found.warm_cost:.3g}.")
    if found.calls_to_settle is not None:
        usual, most = found.calls_to_settle
        worst = "but once not before the next change" if most is None else f"at most {most}"
        sentences.append(
            f"After {len(found.settled)} abrupt changes of the best route, decisions were as good as before "
            f"within {usual:.0f} calls (median), {worst}."
        )
    seen = getattr(ground, "seen", None)
    if seen is not None:
        few = [f"{route} ({seen(route)})" for route in ground.routes if seen(route) < _FEW]
        sentences.append(
            "Outcomes on routes that did not serve a call are drawn from their nearest calls in the trace"
            + (f"; there are few calls of {', '.join(few)}." if few else ".")
        )
    return sentences


def _relative(share: float, more: str, less: str) -> str:
    return f"{abs(share):.0%} {more if share >= 0 else less}"


def _values(ground: World | Trace, found: Comparison) -> dict[str, Any]:
    """Return the values of ``--json``: dollars per answered call, seconds, shares."""
    settle = found.calls_to_settle
    return {
        "name": ground.name,
        "calls": len(ground.calls),
        "percentile": found.percentile,
        "policy": dataclasses.asdict(found.policy),
        "oracle": dataclasses.asdict(found.oracle),
        "oracle_as_often": dataclasses.asdict(found.equal),
        "clairvoyant": dataclasses.asdict(found.clairvoyant),
        "fixed": [dataclasses.asdict(each) for each in found.fixed],
        "others": [dataclasses.asdict(each) for each in found.others],
        "best_fixed": found.best_fixed.name,
        "over_oracle": found.over_oracle,
        "warm_cost": found.warm_cost,
        "under_fixed": found.under_fixed,
        "settled": [dataclasses.asdict(each) for each in found.settled],
        "calls_to_settle": None if settle is None else {"median": settle[0], "most": settle[1]},
    }
