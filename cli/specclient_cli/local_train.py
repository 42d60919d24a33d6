"""Turn the name of what is to be trained into a run: ``specclient local train``."""

from __future__ import annotations

import click

from specclient_cli.lazy import Lazy

#: Every command with its line in ``specclient local train --help``, and its module.
COMMANDS = {
    "draft": "Train a smaller model to draft for a target, on your texts.",
    "heads": "Train Medusa or EAGLE heads of a frozen target.",
}


@click.group(name="train", cls=Lazy, lines=COMMANDS, module="specclient_cli.local_train_{}")
def command() -> None:
    """Train what drafts for a target, on the target's own answers.

    \b
    Examples:
      specclient local train draft --data ./our-code --out ./our-draft
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local train heads -m ./llama-3.2-1b --kind medusa --out ./medusa
    """
