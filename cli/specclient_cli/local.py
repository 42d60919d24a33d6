"""Turn the name of a command into work on a model in this process: ``specclient local``."""

from __future__ import annotations

import importlib

import click

#: Every command with its line in ``specclient local --help``, and its module.
COMMANDS = {
    "generate": "Continue a text, and say how fast.",
    "bench": "Time methods of decoding against each other, on your prompts.",
    "profile": "See where a round's time goes, and what passes cost.",
    "pick": "Choose among drafts, heads and look-ups for a target, as measured.",
    "pick-depth": "Find the draft length that is fastest here.",
    "train": "Train a draft, or Medusa or EAGLE heads, of a target.",
    "export": "Print what starts vLLM, SGLang, TensorRT-LLM or llama.cpp with a pair.",
    "plan": "See what memory models take, before they are loaded.",
}


class Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"specclient_cli.local_{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(name="local", cls=Commands)
def command() -> None:
    """Run, time and plan models on this machine, without a server.

    A model is 'demo' (the bundled pair), the name of a [local.models.NAME] table, a folder with config.json
    and safetensors, or a hub id. Nothing is written to the ledger.

    \b
    Examples:
      specclient local generate "def fibonacci(n):"
      specclient local bench --model ./llama-3.2-3b --draft ./llama-3.2-1b
      specclient local profile --batch 4
      specclient local pick-depth --prompts mine.jsonl --json
      specclient local plan Qwen/Qwen3-8B --dtype bfloat16 --memory 24GiB
    """
