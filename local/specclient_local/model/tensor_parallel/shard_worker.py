"""Program of a process that runs one part of a tensor-parallel model.

It reads what to load, and then the operations of the first part's process, from its standard input, and ends
with it.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress

import torch

from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.tensor_parallel.parallel_runner import ShardSettings
from specclient_local.model.tensor_parallel.shard_processes import READY


class ShardRunner(DecoderRunner):
    """A runner of a part without the output layer."""

    def run_unread(self, parts: Sequence[SlotInput]) -> None:
        """Run a pass without logits."""
        self.run_pass(parts, unread=True)


def main() -> None:
    """Load a part, say so, and run operations until there are no more."""
    orders, answer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints
    settings: ShardSettings = pickle.load(orders)  # noqa: S301 - written by the process that started this one
    torch.set_num_threads(settings.threads)
    try:
        config, weights = settings.load()
    except Exception as error:  # noqa: BLE001 - the other process tells the reason
        answer.write(f"{type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
        return
    answer.write(READY)
    with torch.inference_mode():
        runner = ShardRunner(settings.decoder(config, weights), settings.slots, settings.context)
    while True:
        try:
            name, arguments = pickle.load(orders)  # noqa: S301 - as above
        except EOFError:
            os._exit(0)  # the group's threads would wait for processes that are ending as well
        with suppress(ValueError):  # the first process raises the same, before any sum
            getattr(runner, name)(*arguments)


if __name__ == "__main__":
    main()
