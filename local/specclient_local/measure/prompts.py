"""Prompts for measurements: from a file, or from held-out modules of the standard library."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.corpus import split_modules

HELD_OUT_TOKENS = 64
"""Length of a held-out prompt in tokens."""


def held_out(tokenizer: Tokenizer, count: int, tokens: int = HELD_OUT_TOKENS) -> list[list[int]]:
    """Return ``count`` prompts from modules that the bundled pair was not trained on.

    Each has ``tokens`` token ids and starts at the beginning of a line. The result is deterministic.
    """
    generator = random.Random(0)
    modules = _held_out_modules()
    prompts: list[list[int]] = []
    while len(prompts) < count:
        lines = generator.choice(modules).splitlines(keepends=True)
        start = generator.randrange(max(1, len(lines) - 40))
        ids = tokenizer.encode("".join(lines[start : start + 40]))[:tokens]
        if len(ids) == tokens:
            prompts.append(ids)
    return prompts


@functools.cache
def _held_out_modules() -> tuple[str, ...]:
    """Return the sources of the modules that are long enough; cached, since it takes about a second."""
    return tuple(module.text for module in split_modules("heldout") if len(module.text) > 4000)


def read_prompts(path: Path) -> list[str]:
    """Read prompts from a file of JSON lines with ``prompt``; any other text file is one prompt.

    Raises:
        ConfigurationError: the file cannot be read, is not UTF-8 text, or contains no prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text; convert it, for example with iconv.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); name a file.") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ConfigurationError(f"{path} is empty; write at least one prompt into it.")
    if _row(lines[0][1]) is None:
        return [text]
    return [_prompt(line, f"{path}, line {number}") for number, line in lines]


def _row(line: str) -> dict[str, object] | None:
    """Return a line's JSON object; None where it is not one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _prompt(line: str, where: str) -> str:
    row = _row(line)
    prompt = None if row is None else row.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise ConfigurationError(
            f'{where} has no prompt; every line must be an object like {{"prompt": "…"}}.'
        )
    return prompt


def encode_fitting(
    tokenizer: Tokenizer, prompts: Sequence[str], new: int, context: int
) -> tuple[list[list[int]], int]:
    """Encode prompts, without those that exceed the context together with ``new`` new tokens.

    Returns:
        The token ids of the prompts that fit, and the number of those that do not.

    Raises:
        ConfigurationError: no prompt fits.
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
