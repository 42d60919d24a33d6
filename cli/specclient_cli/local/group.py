"""``specclient local``: models on this machine."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient local --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "generate": ("specclient_cli.local.generate:command", "Complete a text and print the speed."),
    "bench": (
        "specclient_cli.local.bench:command",
        "Compare the speed of decoding methods on your prompts.",
    ),
    "profile": (
        "specclient_cli.local.profile:command",
        "Show the time of each stage of a round, and of model passes.",
    ),
    "pick": (
        "specclient_cli.local.pick.command:command",
        "Choose among drafts for a target by measuring them.",
    ),
    "pick-depth": (
        "specclient_cli.local.pick.depth:command",
        "Find the fastest draft length on this machine.",
    ),
    "train": (
        "specclient_cli.local.train.group:command",
        "Train a draft model, or Medusa, EAGLE or P-EAGLE heads, for a target.",
    ),
    "export": (
        "specclient_cli.local.export:command",
        "Print a script that starts another inference server with a pair of models.",
    ),
    "plan": ("specclient_cli.local.plan:command", "Show the memory that models need before they are loaded."),
    "start": (
        "specclient_cli.local.start:command",
        "Start the server of a configured model, and wait until it answers.",
    ),
    "ps": ("specclient_cli.local.ps:command", "List the servers that were started for configured models."),
    "stop": ("specclient_cli.local.stop:command", "Stop the servers of configured models."),
}


@click.group(name="local", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Run, measure and train models on this machine, without a server.

    A model is 'demo' (the bundled pair), the NAME of a [local.models.NAME] table, a folder with config.json
    and safetensors, or a hub id. These commands do not write to the ledger.

    \b
    Examples:
      specclient local generate "def fibonacci(n):"
      specclient local bench --model ./llama-3.2-3b --draft ./llama-3.2-1b
      specclient local profile --batch 4
      specclient local pick --candidates bundled:eagle3,bundled:medusa,ngram
      specclient local pick-depth --prompts mine.jsonl --json
      specclient local plan Qwen/Qwen3-8B --dtype bfloat16 --memory 24GiB
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local export demo --heads bundled:eagle3 --to vllm
      specclient local start big
    """
