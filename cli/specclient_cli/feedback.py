"""``specclient feedback``: score the answer of a call."""

from __future__ import annotations

import click

from specclient_cli.common import render
from specclient_cli.common.parameter_types import ParameterType
from specclient_cli.common.state import State, pass_state

_THUMBS = {"up": 1.0, "down": 0.0}


class _Score(ParameterType):
    """A number from 0 to 1, or a thumb."""

    name = "score"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value in _THUMBS:
            return _THUMBS[value]
        try:
            score = float(value)
        except ValueError:
            score = float("nan")
        if not 0 <= score <= 1:
            self.fail(f"{value!r} is not a score: write up, down, or a number from 0 to 1.", param, ctx)
        return score


@click.command(name="feedback")
@click.argument("call_id", metavar="CALL_ID")
@click.argument("score", metavar="SCORE", type=_Score())
@pass_state
def command(state: State, /, *, call_id: str, score: float) -> None:
    """Score the answer of a call.

    SCORE is up, down, or a grader's mark from 0 to 1. Policies with min_quality learn from it, in all
    programs that share the ledger: running ones within about a minute. CALL_ID is meta.id of the answer, or
    the whole id that `specclient cost tail --json` and `specclient cost export` show. A second score of a
    call does not replace the first one: both count.

    \b
    Examples:
      specclient feedback 9f86d081884c7d659a2feaa0c55ad015 up
      specclient feedback 9f86d081884c7d659a2feaa0c55ad015 0.7

    Environment: SPECCLIENT_LEDGER, SPECCLIENT_CONFIG.
    """
    from specclient.errors import LedgerError  # noqa: PLC0415 - keeps --help quick

    with state.client() as client:
        ledger = client.ledger
        if ledger.location == "off":
            raise LedgerError(
                "the ledger is off, so the score would be lost; name the ledger of the program that made the "
                "call in SPECCLIENT_LEDGER"
            )
        client.feedback(call_id, score)
        if not ledger.flush():
            raise LedgerError(f"the score was not written to the ledger {ledger.location}; try again")
    render.print_paragraph(f"Scored {call_id}: {score:g}.")
