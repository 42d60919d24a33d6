"""Calls for two small real replicas from a trace of conversations: arrivals in phases, prompts by hashes."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BLOCK", "CONTEXT", "PHASES", "Call", "Phase", "load_of"]

#: Tokens of a block in place of the trace's 512, the model's context, and blocks of a prompt at most.
BLOCK, CONTEXT, _MOST_BLOCKS = 32, 1024, 27
#: The tokens of an answer in place of one of the trace, and the fewest and the most.
_ANSWER_SHARE, _FEWEST, _MOST = 1 / 8, 8, 112
#: Modules of the standard library whose text, one after the other, is that of the blocks.
_MODULES = (
    "argparse", "ast", "calendar", "configparser", "dataclasses", "datetime", "difflib", "doctest", "enum",
    "fractions", "ftplib", "imaplib", "inspect", "ipaddress", "locale", "mailbox", "nntplib", "optparse",
    "pathlib", "pdb", "pickle", "platform", "plistlib", "posixpath", "pprint", "pydoc", "random", "shutil",
    "smtplib", "socket", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading",
    "tokenize", "traceback", "turtle", "typing", "unittest/case", "unittest/mock", "urllib/request", "uuid",
    "zipfile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run.

    Attributes:
        name: of the load.
        share: of the calls.
        rate: calls a second, on average, for a pace of 1.
    """

    name: str
    share: float
    rate: float


PHASES = (Phase("low", 0.15, 0.35), Phase("middle", 0.3, 0.9), Phase("high", 0.55, 2.0))


@dataclass(frozen=True, slots=True)
class Call:
    """One call: seconds after the start, phase, prompt as token ids, and tokens of the answer."""

    at: float
    phase: str
    prompt: tuple[int, ...]
    tokens: int


def load_of(trace: Path, tokenizer: Path, *, seconds: float, pace: float, seed: int = 0) -> list[Call]:
    """Return calls of some of the trace's conversations, whole ones with all their turns.

    Requests of more than 27 blocks do not fit into the model's context, and are left out. The gaps between
    calls are those of the trace in proportion, at the rate of the phase.

    Args:
        trace: Mooncake's conversation trace.
        tokenizer: the file of the model's tokenizer.
        seconds: of all phases together.
        pace: the factor of all rates.
        seed: of the choice of conversations.

    Raises:
        ValueError: a number is not positive, or there are too few calls for a phase or in the trace.
    """
    if not (seconds > 0 and pace > 0):
        raise ValueError(f"{seconds:g} s and a pace of {pace:g} were given; both must be above 0")
    spans = [phase.share / (phase.rate * pace) for phase in PHASES]
    count = int(seconds / sum(spans))
    if min(round(phase.share * count) for phase in PHASES) < 2:
        raise ValueError(
            f"{seconds:g} s at a pace of {pace:g} have {count} calls, too few for {len(PHASES)} phases; "
            "take more seconds or a faster pace"
        )
    rows = _rows(trace, count, random.Random(seed))
    if len(rows) < count:
        raise ValueError(f"{trace} has {len(rows)} short enough requests, and {count} are needed")
    texts = _texts(tokenizer)
    calls, at, number = [], 0.0, 0
    for phase in PHASES:
        own = rows[number : number + round(phase.share * count)]
        number += len(own)
        gaps = [max(later["at"] - row["at"], 0.0) for row, later in itertools.pairwise(own)]
        usual = sum(gaps) / max(len(gaps), 1)
        for row, gap in zip(own, [*gaps, usual], strict=True):
            tokens = min(max(int(row["output_length"] * _ANSWER_SHARE), _FEWEST), _MOST)
            calls.append(Call(at, phase.name, _prompt(row, texts), tokens))
            at += gap / usual / (phase.rate * pace)
    return calls


def _rows(trace: Path, count: int, dice: random.Random) -> list[dict[str, Any]]:
    """Return so many requests of the trace in order, of conversations that are drawn at random."""
    with (gzip.open if trace.suffix == ".gz" else open)(trace, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    rows = [row for row in rows if len(row["hash_ids"]) <= _MOST_BLOCKS]
    by_session: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows:
        row["at"] = row["timestamp"] / 1e3 + dice.random() * 3  # timestamps come in steps of three seconds
        first = row["hash_ids"][:2]  # the first block is the system's prompt
        by_session.setdefault(tuple(first) if len(first) > 1 else (-len(by_session),), []).append(row)
    sessions = list(by_session.values())
    dice.shuffle(sessions)
    chosen: list[dict[str, Any]] = []
    for session in sessions:
        chosen += session
        if len(chosen) >= count:
            break
    return sorted(chosen, key=lambda row: row["at"])[:count]


def _texts(tokenizer: Path) -> list[int]:
    """Return the token ids of the modules' texts."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - the times of --help

    encoder = Tokenizer.from_file(str(tokenizer))
    folder = Path(sysconfig.get_path("stdlib"))
    files = [file for name in _MODULES if (file := folder / f"{name}.py").exists()]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [token for text in texts for token in encoder.encode(text, add_special_tokens=False).ids]


def _prompt(row: dict[str, Any], texts: list[int]) -> tuple[int, ...]:
    """Return the tokens of a request. The hashes of a new text are consecutive, and so are its blocks."""
    found: list[int] = []
    for number in row["hash_ids"]:
        start = number * BLOCK % (len(texts) - BLOCK)
        found += texts[start : start + BLOCK]
    last = row["input_length"] % 512 * BLOCK // 512 or BLOCK
    return tuple(found[: len(found) - BLOCK + max(last, 1)])
