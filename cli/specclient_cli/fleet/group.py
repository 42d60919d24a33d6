"""``specclient fleet``: replicas of inference servers on a Ray cluster."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient fleet --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "plan": (
        "specclient_cli.fleet.plan:command",
        "Show memory, replicas and dollars an hour, or print files for other tools.",
    ),
    "deploy": ("specclient_cli.fleet.deploy:command", "Start a fleet, and wait until it answers."),
    "status": ("specclient_cli.fleet.status:command", "Show the replicas of fleets and their load."),
    "scale": ("specclient_cli.fleet.scale:command", "Change the number of replicas of pools."),
    "update": (
        "specclient_cli.fleet.update:command",
        "Replace a running fleet by what is configured now, replica by replica.",
    ),
    "stop": ("specclient_cli.fleet.stop:command", "Stop a fleet."),
    "logs": ("specclient_cli.fleet.logs:command", "Print the last lines of the replicas' logs."),
}


@click.group(name="fleet", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Run a pair of models on several replicas of vLLM, with Ray Serve.

    NAME is that of a [fleets.NAME] table. The cluster is the one at RAY_ADDRESS, at 'address' in the table,
    or a cluster on this machine that is started for it. Models are then called NAME/POOL, and NAME/auto is
    the pool that is fastest at this load.

    \b
    Examples:
      specclient fleet plan big
      specclient fleet plan big --render kuberay
      specclient fleet deploy big
      specclient complete "def f(" -m big/auto
      specclient fleet scale big short=2 long=1
      specclient fleet stop big
    """
