"""Turn the name of a command into work on a model in this process: ``specclient local``."""

from __future__ import annotations

import click

from specclient_cli.lazy import Lazy

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


@click.group(name="local", cls=Lazy, lines=COMMANDS, module="specclient_cli.local_{}")
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
