"""Two hundred prompts for comparing answers, from recorded questions and the standard library."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Literal

from paths import DATA
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.corpus import split_modules

Kind = Literal["library", "humaneval", "prose"]

PROMPTS = DATA / "prompts"
LIBRARY = 70


@dataclass(frozen=True)
class Prompt:
    """A prompt, its kind and its id in the source."""

    kind: Kind
    id: str
    text: str

    def ids(self, tokenizer: Tokenizer, most: int = 64) -> list[int]:
        """Return the first ``most`` token ids of the prompt, including the start token."""
        return tokenizer.encode(self.text)[:most]


@cache
def prompts() -> tuple[Prompt, ...]:
    """Return two hundred prompts in which the three kinds alternate, so that any prefix has all kinds."""
    kinds = [_library(), _recorded("humaneval"), _recorded("prose")]
    longest = max(map(len, kinds))
    return tuple(kind[i] for i in range(longest) for kind in kinds if i < len(kind))


def _library() -> list[Prompt]:
    """Return excerpts of forty lines from held-out modules, chosen with a fixed seed, so always the same."""
    rng = random.Random(0)
    sources = [module for module in split_modules("heldout") if len(module.text) > 4000]
    found: dict[str, Prompt] = {}
    while len(found) < LIBRARY:
        module = rng.choice(sources)
        lines = module.text.splitlines(keepends=True)
        begin = rng.randrange(max(1, len(lines) - 40))
        text = "".join(lines[begin : begin + 40])
        name = f"{module.name}:{begin + 1}"
        if text.strip():
            found[name] = Prompt("library", name, text)
    return list(found.values())


def _recorded(kind: Kind) -> list[Prompt]:
    lines = (PROMPTS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Prompt(kind, row["id"], row["prompt"]) for row in rows]
