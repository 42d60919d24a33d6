"""The format of traces: one line for a call and its outcomes on routes.

There are two kinds of lines, which one file may mix:

Trace lines, ``{"at": 12.5, "task": "chat", "prompt_tokens": 900, "completion_tokens": 120, "outcomes":
{"openai/m": {"latency_s": 2.1, "ttft_s": 0.3, "cost_usd": 0.0004}}}``: ``at`` is in
seconds, on any clock. ``outcomes`` has each route with a known outcome, with ``"failed": true`` if there was
no answer. ``max_ttft_s`` and ``max_latency_s`` are the call's own limits. Without ``task``, long prompts are
``long_context`` and all others ``chat``.

Ledger rows, as ``specclient cost export --format jsonl`` writes them: each has the route that served the
call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.routing.choose.task_classifier import BYTES_PER_TOKEN, LONG_BYTES
from specclient.routing.learn.call_sample import CallSample
from specclient.types.criterion import PromptTask

__all__ = ["TraceCall", "TraceOutcome", "read_line", "task_of"]

_TASKS = get_args(PromptTask)
#: The keys of a trace line, and those of an outcome.
_NAMES = frozenset(
    {"at", "task", "prompt_tokens", "completion_tokens", "max_ttft_s", "max_latency_s", "outcomes"}
)
_OUTCOME = frozenset({"latency_s", "ttft_s", "failed", "cost_usd", "drafted", "accepted", "steps"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOutcome:
    """The outcome of a call on a route; ``cost`` in dollars, None where unknown."""

    latency_s: float
    ttft_s: float | None = None
    failed: bool = False
    cost: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """One line of a trace.

    Attributes:
        at: seconds, on the trace's own clock.
        completion_tokens: of the answer, None without one; such a line shows its route, but is not replayed.
    """

    at: float
    task: PromptTask
    prompt_tokens: int
    completion_tokens: int | None
    max_ttft_s: float | None = None
    max_latency_s: float | None = None
    outcomes: Mapping[str, TraceOutcome] = field(default_factory=dict)


def read_line(text: str, where: str) -> TraceCall | None:
    """Return a line of a trace, None for a ledger row whose outcome says nothing about its route.

    Args:
        where: the file and the line's number, for errors.

    Raises:
        ConfigurationError: the line is invalid; the message gives its place and the allowed values.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{where}: not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: {text[:40]!r} is not a JSON object; a line is one call")
    if "started_at" in given:
        return _of_row(given, where)
    if unknown := sorted(given.keys() - _NAMES):
        raise ConfigurationError(
            f"{where}: {unknown[0]!r} is unknown; a call has {', '.join(sorted(_NAMES))}, "
            "or is a row of `specclient cost export --format jsonl`"
        )
    prompt = _number(given, "prompt_tokens", where, whole=True)
    answer = _number(given, "completion_tokens", where, whole=True, needed=False)
    outcomes = given.get("outcomes", {})
    if not isinstance(outcomes, dict):
        raise ConfigurationError(f"{where}: outcomes is {outcomes!r}; it must be an object of routes")
    return TraceCall(
        at=_number(given, "at", where) or 0.0,
        task=task_of(given.get("task"), int(prompt or 0), where),
        prompt_tokens=int(prompt or 0),
        completion_tokens=int(answer) if answer else None,
        max_ttft_s=_number(given, "max_ttft_s", where, needed=False),
        max_latency_s=_number(given, "max_latency_s", where, needed=False),
        outcomes={str(route): _seen(route, each, where) for route, each in outcomes.items()},
    )


def _seen(route: str, given: Any, where: str) -> TraceOutcome:
    where = f"{where}: outcomes.{route}"
    if "/" not in route:
        raise ConfigurationError(f"{where}: {route!r} is not a route; write 'provider/model'")
    if not isinstance(given, dict) or given.keys() - _OUTCOME:
        raise ConfigurationError(f"{where} is {given!r}; it may have {', '.join(sorted(_OUTCOME))}")
    failed = given.get("failed", False)
    if not isinstance(failed, bool):
        raise ConfigurationError(f"{where}: failed is {failed!r}; it must be true or false")
    counts = {name: _number(given, name, where, whole=True, needed=False) for name in _COUNTS}
    return TraceOutcome(
        latency_s=_number(given, "latency_s", where) or 0.0,
        ttft_s=_number(given, "ttft_s", where, needed=False),
        failed=failed,
        cost=_number(given, "cost_usd", where, needed=False),
        **{name: None if n is None else int(n) for name, n in counts.items()},
    )


_COUNTS = ("drafted", "accepted", "steps")


def _of_row(given: Mapping[str, Any], where: str) -> TraceCall | None:
    """Return the line of a ledger row; parts of a call count for their routes, not as calls."""
    cost = given.get("cost")
    try:
        facts = {name: given[name] for name in LedgerRow.__slots__ if name in given}
        row = LedgerRow(**{**facts, "started_at": datetime.fromisoformat(given["started_at"])})
        sample = CallSample.of_row(row)
        dollars = None if cost is None else float(cost)
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"{where}: not a row of the ledger ({error}); write one with "
            "`specclient cost export --format jsonl`"
        ) from None
    if sample is None or sample.latency_s is None or (sample.completion_tokens is None and not sample.failed):
        return None
    prompt = sample.prompt_tokens or 0
    seen = TraceOutcome(
        latency_s=sample.latency_s,
        ttft_s=sample.ttft_s,
        failed=sample.failed,
        cost=dollars,
        drafted=sample.drafted,
        accepted=sample.accepted,
        steps=sample.steps,
    )
    return TraceCall(
        at=sample.at - sample.latency_s,
        task=task_of(sample.task, prompt, where),
        prompt_tokens=prompt,
        completion_tokens=None if row.parent or sample.failed or sample.warm_up else sample.completion_tokens,
        outcomes={row.route: seen},
    )


def task_of(given: Any, prompt_tokens: int, where: str) -> PromptTask:
    """Return a given task; without one, ``long_context`` for a long prompt and ``chat`` for others.

    Raises:
        ConfigurationError: there is no such task; ``where`` is the line's place.
    """
    if given is None:
        return "long_context" if prompt_tokens * BYTES_PER_TOKEN >= LONG_BYTES else "chat"
    if given not in _TASKS:
        raise ConfigurationError(f"{where}: task is {given!r}; it must be one of {', '.join(_TASKS)}")
    return given  # type: ignore[no-any-return]  # checked above


def _number(
    given: Mapping[str, Any], name: str, where: str, *, whole: bool = False, needed: bool = True
) -> float | None:
    value = given.get(name)
    if value is None and not needed:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < math.inf
        or (whole and value != int(value))
    ):
        kind = "a whole number of 0 or more" if whole else "a number of 0 or more"
        raise ConfigurationError(f"{where}: {name} is {value!r}; it must be {kind}")
    return float(value)
