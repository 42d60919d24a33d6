"""Turn a prompt and a policy into the table of where it could go: the command ``specclient route``."""

from __future__ import annotations

import json
from typing import Any

import click

from specclient.errors import NoRouteError
from specclient.routing.policy import dollars, seconds
from specclient.types import methods
from specclient.types.request import Request
from specclient.types.route import Candidate, Decision, Policy
from specclient_cli import options, render
from specclient_cli.record import decision
from specclient_cli.state import State, pass_state

_COLUMNS = (
    render.Column("route"),
    render.Column("verdict"),
    render.Column("cost", right=True, rank=1),
    render.Column("latency", right=True, rank=1),
    render.Column("accepted", right=True, rank=2),
    render.Column("calls", right=True, rank=3),
)
_STYLES = {"chosen": render.GOOD, "left": "", "refused": render.DIM, "unavailable": render.DIM}


@click.group(name="route")
def command() -> None:
    """See where a prompt would go, and why.

    \b
    Examples:
      specclient route explain "def fibonacci(n):"
    """


@command.command()
@click.argument("prompt")
@options.policy_options
@click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens the call would generate.")
@options.json_option
@pass_state
def explain(state: State, /, prompt: str, max_tokens: int | None, as_json: bool, **given: Any) -> None:
    """Show what 'auto' would choose for a prompt, and why not the others. Nothing is sent.

    PROMPT is the text, or - to read it from stdin. Cost and latency are predicted from the calls in your
    ledger ('calls' counts those behind a figure); 'accepted' is the share of drafts that the target kept.

    \b
    Examples:
      specclient route explain "def fibonacci(n):"
      specclient route explain - --minimize latency --max-cost 0.001 < prompt.txt
      specclient route explain "hello" --policy fast --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys (whether they are set).
    """
    settings = state.settings()
    policy = options.policy_of(settings, **given) or Policy()
    text = options.text_of(prompt)
    params: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if max_tokens is not None:
        params["max_tokens"] = max_tokens
    router = state.parts(settings).pipeline.router
    try:
        chosen = router.decide(Request(methods.CHAT, options.AUTO, params, policy=policy))
    except NoRouteError as error:
        if error.decision is not None and error.decision.candidates:
            show(error.decision, as_json=as_json)
            count = len(error.decision.candidates)
            raise NoRouteError(
                f"none of {count} candidates satisfies the policy; loosen it, or add candidates"
            ) from None
        raise
    show(chosen, as_json=as_json)


def show(route: Decision, *, as_json: bool = False) -> None:
    """Print a decision with every candidate, its predictions and its reason."""
    if as_json:
        click.echo(json.dumps(decision(route)))
        return
    render.grid(_COLUMNS, [_line(candidate) for candidate in route.candidates])


def _line(candidate: Candidate) -> render.Line:
    unknown = render.UNKNOWN
    rate = candidate.acceptance_rate
    return render.Line(
        cells=(
            candidate.route,
            candidate.verdict,
            unknown if candidate.cost is None else dollars(candidate.cost),
            unknown if candidate.latency_s is None else seconds(candidate.latency_s),
            unknown if rate is None else f"{rate:.0%}",
            str(candidate.evidence),
        ),
        style=_STYLES[candidate.verdict],
        note=candidate.reason,
    )
