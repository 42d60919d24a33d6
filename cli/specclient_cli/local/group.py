"""Turn the name of a command into work on a model in this process: ``specclient local``."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient local --help``: where each is, and its line there.
COMMANDS: CommandTable = {
    "generate": ("specclient_cli.local.generate:command", "Continue a text, and say how fast."),
    "bench": (
        "specclient_cli.local.bench:command",
        "Time methods of decoding against each other, on your prompts.",
    ),
    "profile": (
        "specclient_cli.local.profile:command",
        "See where a round's time goes, and what passes cost.",
    ),
    "pick": (
        "specclient_cli.local.pick.command:command",
        "Choose among drafts, heads and look-ups for a target, as measured.",
    ),
    "pick-depth": ("specclient_cli.local.pick.depth:command", "Find the draft length that is fastest here."),
    "train": (
        "specclient_cli.local.train.group:command",
        "Train a draft, or Medusa or EAGLE heads, of a target.",
    ),
    "export": (
        "specclient_cli.local.export:command",
        "Print what starts vLLM, SGLang, TensorRT-LLM or llama.cpp with a pair.",
    ),
    "plan": ("specclient_cli.local.plan:command", "See what memory models take, before they are loaded."),
}


@click.group(name="local", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Run, time and plan models on this machine, without a server.

    A model is 'demo' (the bundled pair), the name of a [local.models.NAME] table, a folder with config.json
    and safetensors, or a hub id. Nothing is written to the ledger.

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
    """
