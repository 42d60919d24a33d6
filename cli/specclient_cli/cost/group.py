"""``specclient cost``: the group of commands about money."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient cost --help``: where each is, and its line there.
COMMANDS: CommandTable = {
    "report": ("specclient_cli.cost.report:report_command", "Sum up calls by any group."),
    "top": ("specclient_cli.cost.calls:top", "Show what is dearest."),
    "tail": ("specclient_cli.cost.calls:tail", "Show the latest calls, or each as it ends."),
    "export": ("specclient_cli.cost.calls:export", "Write the calls as CSV or JSON lines."),
    "prune": ("specclient_cli.cost.calls:prune", "Remove old calls."),
    "budget": ("specclient_cli.cost.budget:budget", "Show what each budget has spent, holds and has left."),
    "prices": (
        "specclient_cli.cost.prices:prices",
        "Show the prices that would be charged now, and their source.",
    ),
    "update-prices": (
        "specclient_cli.cost.prices:update_prices",
        "Fetch the current price catalogue, to be used from then on.",
    ),
    "estimate": (
        "specclient_cli.cost.estimate:estimate",
        "Estimate what prompts may cost before they are sent.",
    ),
}


@click.group(name="cost", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Sum up what calls used and cost.

    \b
    Examples:
      specclient cost report
      specclient cost top --by tag:team
      specclient cost tail -f
    """
