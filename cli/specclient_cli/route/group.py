"""``specclient route``: how prompts are routed."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient route --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "explain": (
        "specclient_cli.route.explain:command",
        "Show which route 'auto' would choose for a prompt, and why.",
    ),
    "stats": (
        "specclient_cli.route.stats:command",
        "Show the statistics of past calls that predictions use.",
    ),
    "warm": (
        "specclient_cli.route.warm:command",
        "Measure the candidates with a few cheap calls.",
    ),
    "simulate": (
        "specclient_cli.route.simulate:command",
        "Replay calls under a policy and compare it with fixed routes.",
    ),
}


@click.group(name="route", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Explain, list and simulate routing decisions.

    \b
    Examples:
      specclient route explain "def fibonacci(n):"
      specclient route stats
      specclient route warm --budget 0.05
      specclient route simulate --world mixed
    """
