"""Turn the bundled pair into a demonstration: decoding side by side, routing, cost: ``specclient demo``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from specclient.config import Settings
from specclient.costs.reports import Report, report
from specclient.errors import EngineError
from specclient.sync import OpenAI
from specclient.types.call import Call
from specclient.types.route import Policy
from specclient_cli import calls, cost, options, render, route
from specclient_cli.record import decision, line, record, speculation, tokens_per_s
from specclient_cli.state import State, pass_state

PLAIN, SPECULATIVE = "local/demo-target", "local/demo"
PROMPT = "def fibonacci(n):\n"
#: Prompts that are routed, one policy each.
ROUTED = ("class Stack:\n", "def read_json(path):\n", "def test_sorted():\n")
#: Tokens of a warm-up call: enough that the next call finds every kernel used before.
WARM_TOKENS = 8
ROUTED_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Measured:
    """One of the two continuations.

    Attributes:
        text: what was generated; ``call``: its record.
    """

    text: str
    call: Call

    def footer(self) -> str:
        """Return its figures in a line."""
        return f"{line(self.call)} · {self.call.latency_s:.3g} s"


@dataclass(frozen=True, slots=True)
class Routed:
    """One prompt that went where a policy sent it."""

    title: str
    prompt: str
    text: str
    call: Call


class Demo:
    """One run: every call of it is recorded under the tag ``demo``.

    Args:
        run: the tag's value.
        quiet: print nothing but what :meth:`as_values` is for.
    """

    def __init__(self, client: OpenAI, run: str, max_tokens: int, *, quiet: bool) -> None:
        self._client = client
        self._run = run
        self._max_tokens = max_tokens
        self._quiet = quiet

    def ask(self, model: str, prompt: str, step: str, max_tokens: int, policy: Policy | None = None) -> calls.Ask:
        """Return a call of this run; greedy, so that both ways of decoding must give the same text."""
        return calls.Ask(
            model=model,
            form="text",
            params={"prompt": prompt, "max_tokens": max_tokens, "temperature": 0},
            policy=policy,
            extension={"origins": True} if model != options.AUTO else {},
            tags={"demo": self._run, "step": step},
        )
