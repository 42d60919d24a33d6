"""Turn a file, or the standard library's held-out modules, into prompts that runs are timed on."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.corpus import modules

HELD_OUT_TOKENS = 64
"""Tokens of a held-out prompt."""


def held_out(tokenizer: Tokenizer, count: int, tokens: int = HELD_OUT_TOKENS) -> list[list[int]]:
    """Cut prompts of so many token ids out of modules that the bundled pair was not trained on.

    Each begins with a line; the same ones every time.
    """
    dice = random.Random(0)
    unseen = _unseen()
    cut: list[list[int]] = []
    while len(cut) < count:
        lines = dice.choice(unseen).splitlines(keepends=True)
        begin = dice.randrange(max(1, len(lines) - 40))
        ids = tokenizer.encode("".join(lines[begin : begin + 40]))[:tokens]
        if len(ids) == tokens:
            cut.append(ids)
    return cut


@functools.cache
def _unseen() -> tuple[str, ...]:
    """Read the modules that are long enough to cut from; a second's work, so once."""
    return tuple(module.text for module in modules("heldout") if len(module.text) > 4000)


def read_prompts(path: Path) -> list[str]:
    """Read prompts from a file: one JSON object a line with ``prompt``, or else one prompt that is all of it.

    Raises:
        ConfigurationError: a file that cannot be read, is no text, or has no prompt in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is no UTF-8 text; convert it, with iconv for instance.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); name a file.") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ConfigurationError(f"{path} is empty; give it prompts.")
    if _row(lines[0][1]) is None:
        return [text]
    return [_prompt(line, f"{path}, line {number}") for number, line in lines]


def _row(line: str) -> dict[str, object] | None:
    """Return the object that a line is, None where it is something else."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _prompt(line: str, where: str) -> str:
    row = _row(line)
    prompt = None if row is None else row.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise ConfigurationError(f'{where} has no prompt; every line is an object like {{"prompt": "…"}}.')
    return prompt


def encode_fitting(
    tokenizer: Tokenizer, prompts: Sequence[str], new: int, context: int
) -> tuple[list[list[int]], int]:
    """Encode prompts, and leave out those that with ``new`` tokens exceed a context.

    Returns:
        The ids of those that fit, and how many do not.

    Raises:
        ConfigurationError: none fits.
    """
    encoded = [tokenizer.encode(prompt) for prompt in prompts]
    fit = [ids for ids in encoded if ids and len(ids) + new <= context]
    if not fit:
        shortest = min(map(len, encoded))
        raise ConfigurationError(
            f"no prompt fits: the shortest has {shortest} tokens, which with {new} new ones exceed the "
            f"context of {context}; use shorter prompts, fewer new tokens or a larger context."
        )
    return fit, len(encoded) - len(fit)
