"""``specclient cost``: costs, budgets and prices."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient cost --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "report": (
        "specclient_cli.cost.report:command",
        "Report tokens, acceptance, speed and cost of the calls in the ledger.",
    ),
    "top": ("specclient_cli.cost.top:command", "Show the most expensive models, tags or calls."),
    "tail": ("specclient_cli.cost.tail:command", "Show the latest calls, or follow calls as they end."),
    "export": ("specclient_cli.cost.export:command", "Write the calls as CSV or JSON lines."),
    "prune": ("specclient_cli.cost.prune:command", "Delete old calls from the ledger."),
    "budget": (
        "specclient_cli.cost.budget:command",
        "Show the spent, reserved and remaining amount of each budget.",
    ),
    "prices": (
        "specclient_cli.cost.prices:command",
        "Show current prices and their source.",
    ),
    "update-prices": (
        "specclient_cli.cost.update_prices:command",
        "Fetch the current price catalogue.",
    ),
    "storage": (
        "specclient_cli.cost.storage:command",
        "Book what vector stores cost for today.",
    ),
    "reconcile": (
        "specclient_cli.cost.reconcile:command",
        "Compare a vendor's bill with the ledger.",
    ),
    "forecast": (
        "specclient_cli.cost.forecast:command",
        "Forecast the cost of this month.",
    ),
    "anomalies": (
        "specclient_cli.cost.anomalies:command",
        "Report what cost unusually much in the last day.",
    ),
    "savings": (
        "specclient_cli.cost.savings:command",
        "Show what the response cache, prompt caches and speculation each saved.",
    ),
    "advise": (
        "specclient_cli.cost.advise:command",
        "Advise how to spend less.",
    ),
    "estimate": (
        "specclient_cli.cost.estimate:command",
        "Estimate the cost of prompts before they are sent.",
    ),
}


@click.group(name="cost", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Report what calls used and cost, and estimate costs.

    \b
    Examples:
      specclient cost report
      specclient cost top --by tag:team
      specclient cost tail -f
    """
