"""Arrivals and lengths of real calls, from published traces, for the hosts of a simulated world.

Three formats are read, each also compressed by gzip:

- Azure's LLM inference traces (Patel et al., "Splitwise", 2311.18677; Azure Public Dataset, CC-BY): CSV with
  the columns ``TIMESTAMP,ContextTokens,GeneratedTokens``.
- Mooncake's traces (Qin et al., 2407.00079; Apache-2.0): JSON lines with ``timestamp`` in milliseconds,
  ``input_length`` and ``output_length``; ``hash_ids`` has a number for each 512 tokens of the prompt, the
  same in all prompts that begin alike up to their end.
- The lines of :mod:`specclient.routing.simulate.trace_format`, rows of the ledger among them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from specclient.errors import ConfigurationError
from specclient.routing.simulate.trace_format import read_line, task_of
from specclient.types.criterion import PromptTask

__all__ = ["Arrival", "Arrivals", "read_arrivals"]

_AZURE = "timestamp,contexttokens,generatedtokens"
_MOONCAKE = ("timestamp", "input_length", "output_length")
_GZIP = b"\x1f\x8b"
#: Digits of a fraction of a second that ``datetime`` reads; Azure's traces have seven.
_MICROSECONDS = 6


class Arrival(NamedTuple):
    """A call that arrives: seconds since the first one, its task, and the tokens of prompt and answer.

    Its conversation and the blocks of its prompt are as in :class:`SimulatedCall`.
    """

    at: float
    task: PromptTask
    prompt_tokens: int
    completion_tokens: int
    session: str | None = None
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The calls of a trace.

    Attributes:
        name: the file.
        calls: in the order of their times.
        skipped: why lines were skipped, with their places.
        stretch: the factor on the times of the trace.
    """

    name: str
    calls: tuple[Arrival, ...]
    skipped: tuple[str, ...] = ()
    stretch: float = 1.0


def read_arrivals(
    file: Path,
    *,
    stretch: float = 1.0,
    skip: int = 0,
    most: int | None = None,
    skip_invalid: bool = False,
    longest_gap_s: float | None = None,
) -> Arrivals:
    """Read a trace.

    Args:
        file: the trace.
        stretch: times are multiplied by it: 2 halves the rate of calls.
        skip: this many calls at the beginning are left out.
        most: at most this many of the others are read; None for all.
        skip_invalid: whether invalid lines are skipped, not refused.
        longest_gap_s: the most seconds of the trace between two calls. A longer gap, such as of a recording
            that was interrupted, is refused, or shortened to it with ``skip_invalid``. None allows any gap.

    Raises:
        ConfigurationError: the file cannot be read, a line is invalid, or no call is left.
    """
    calls, skipped = list[Arrival](), list[str]()
    start = last = None
    left, sessions, shift = skip, _Sessions(), 0.0
    for number, text in enumerate(_lines(file), 1):
        if not text.strip() or (number == 1 and _is_header(text)):
            continue
        if most is not None and len(calls) >= most:
            break
        where = f"{file}:{number}"
        try:
            found = _read(text, where)
            if found is None:
                continue
            _check_order(found.at, last, where)
        except ConfigurationError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
            continue
        gap = 0.0 if last is None else found.at - last
        last = found.at
        if longest_gap_s is not None and gap > longest_gap_s:
            what = f"{where}: {gap:,.0f} s without a call before it; at most {longest_gap_s:,g} s are allowed"
            if not skip_invalid:
                raise ConfigurationError(f"{what}; cut the file there, or let the gap be shortened")
            skipped.append(what)
            shift += gap - longest_gap_s
        found = sessions.assign(found._replace(at=found.at - shift))
        if left:
            left -= 1
            continue
        start = found.at if start is None else start
        calls.append(found._replace(at=(found.at - start) * stretch))
    if not calls:
        after = f" after the first {skip:,}" if skip else ""
        raise ConfigurationError(
            f"{file} contains no call with an answer{after}; there is nothing to simulate"
        )
    return Arrivals(str(file), tuple(calls), tuple(skipped), stretch)


class _Sessions:
    """Finds the conversation that each prompt continues: that of the longest earlier prefix."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self._count = 0

    def assign(self, call: Arrival) -> Arrival:
        """Return a call with its session; a first block alone, such as a system prompt, makes none."""
        if call.session is not None or not call.prefix:
            return call
        owners, after_first = self._owners, call.prefix[1:]
        session = next((owners[block] for block in reversed(after_first) if block in owners), None)
        if session is None:
            session, self._count = f"conversation {self._count}", self._count + 1
        owners.update(dict.fromkeys(after_first, session))
        return call._replace(session=session)


def _check_order(at: float, last: float | None, where: str) -> None:
    if last is not None and at < last:
        raise ConfigurationError(f"{where}: its time is before that of the call above it; sort the file")


def _lines(file: Path) -> Iterator[str]:
    try:
        with file.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
        opener = gzip.open if packed else open
        with opener(file, "rt", encoding="utf-8-sig") as lines:
            yield from lines
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 text: {error}") from None
    except (OSError, EOFError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None


def _is_header(text: str) -> bool:
    return text.strip().lower() == _AZURE


def _read(text: str, where: str) -> Arrival | None:
    """Return the call of a line; None for a line of a trace without an answer."""
    if not text.lstrip().startswith("{"):
        return _of_azure(text, where)
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{where}: not JSON: {error}") from None
    if isinstance(given, dict) and given.keys() >= set(_MOONCAKE):
        seconds, prompt, answer = (given[name] for name in _MOONCAKE)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e15:
            raise ConfigurationError(f"{where}: timestamp is {seconds!r}; it must be milliseconds, 0 or more")
        blocks = given.get("hash_ids", [])
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            raise ConfigurationError(f"{where}: hash_ids is {str(blocks)[:40]}; it must be a list of numbers")
        return _arrival(seconds / 1000, prompt, answer, where)._replace(prefix=tuple(blocks))
    line = read_line(text, where)
    if line is None or not line.completion_tokens:
        return None
    return Arrival(line.at, line.task, line.prompt_tokens, line.completion_tokens)


def _of_azure(text: str, where: str) -> Arrival:
    cells = text.strip().split(",")
    if len(cells) != 3:
        raise ConfigurationError(
            f"{where}: {text.strip()[:40]!r} has {len(cells)} cells; a line is a call: {_AZURE}, or JSON"
        )
    begin, dot, fraction = cells[0].partition(".")
    try:
        at = datetime.fromisoformat(begin + dot + fraction[:_MICROSECONDS]).replace(tzinfo=UTC).timestamp()
        prompt, answer = int(cells[1]), int(cells[2])
    except ValueError:
        raise ConfigurationError(
            f"{where}: {text.strip()[:60]!r} is not a time and two whole numbers"
        ) from None
    return _arrival(at, prompt, answer, where)


def _arrival(at: float, prompt: Any, answer: Any, where: str) -> Arrival:
    for name, count in (("prompt", prompt), ("answer", answer)):
        if type(count) is not int or count < 1:
            raise ConfigurationError(f"{where}: the {name} has {count!r} tokens; it must have 1 or more")
    return Arrival(at, task_of(None, prompt, where), prompt, answer)
