"""The common part of the scripts: clients for each way, and the checks of what a library returns.

A script defines functions that use its library as its documentation shows, and passes them to :func:`run`.
Each result is printed as one line of JSON: ``{"server", "check", "error"}``, where ``error`` is null for a
check that passed.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pydantic

TEXT = "The quick brown fox jumps over the lazy dog."
PROMPT = "What is the weather?"
CITIES = ("Ulm", "Bonn")
_CHECK_S = 300.0


class City(pydantic.BaseModel):
    """A city."""

    city: Literal["Ulm", "Bonn"]


# No `from __future__ import annotations` here: libraries read the types of this function.
def weather(city: Literal["Ulm", "Bonn"]) -> str:
    """Return the weather of a city.

    Args:
        city: the city's name.
    """
    return f"sunny in {city}"


#: The tool in the form of a chat completion's request.
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Return the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(CITIES)}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
#: The schema of :class:`City` in the form of a chat completion's request.
FORM: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "City", "schema": TOOL["function"]["parameters"], "strict": True},
}


@dataclass(frozen=True)
class Case:
    """One way to one server.

    Attributes:
        way: ``object`` (a specclient client is given to the library), ``transport`` (an official client over
            specclient's transport), ``server`` (the library's own client at ``specclient serve``) or
            ``plain`` (an official client at the canned server is given to the library).
        server: ``canned`` or ``demo``.
        model: the model's name; :attr:`tool_model` is the one that calls tools.
        base_url: the base URL for a client that the library makes.
    """

    way: str
    server: str
    model: str
    tool_model: str
    base_url: str | None

    @property
    def own(self) -> bool:
        """Whether the library makes its client itself."""
        return self.way == "server"

    def client(self) -> Any:
        """Return a synchronous client."""
        if self.way == "object":
            import specclient  # noqa: PLC0415 - the ways of the library's own client do without it

            return specclient.OpenAI()
        if self.way == "transport":
            import specclient  # noqa: PLC0415

            return specclient.openai_client()
        import openai  # noqa: PLC0415

        return openai.OpenAI(base_url=self.base_url, api_key="any")

    def async_client(self) -> Any:
        """Return an asynchronous client."""
        if self.way == "object":
            import specclient  # noqa: PLC0415

            return specclient.AsyncOpenAI()
        if self.way == "transport":
            import specclient  # noqa: PLC0415

            return specclient.async_openai_client()
        import openai  # noqa: PLC0415

        return openai.AsyncOpenAI(base_url=self.base_url, api_key="any")


class CheckError(Exception):
    """A library returned something else than the server sent."""


def hosted(case: Case) -> bool:
    """Return whether the server is the one with canned answers."""
    return case.server == "canned"


def _whole(case: Case, got: Any) -> None:
    if not isinstance(got, str) or not got or (hosted(case) and got != TEXT):
        raise CheckError(f"the answer is {got!r}")


def _streamed(case: Case, got: Any) -> None:
    pieces = [piece for piece in got if piece]
    if len(pieces) < 2:
        raise CheckError(f"the stream has {len(pieces)} pieces: {pieces!r}")
    _whole(case, "".join(pieces))


def _tool(case: Case, got: Any) -> None:
    name, arguments = got
    parsed = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    city = parsed.get("city")
    if name != "weather" or not (city in CITIES or (not hosted(case) and isinstance(city, str))):
        raise CheckError(f"the tool call is {name!r} with {parsed!r}")


def _structured(case: Case, got: Any) -> None:
    if got not in CITIES:
        raise CheckError(f"the structured output is {got!r}")


_VERIFY: dict[str, Callable[[Case, Any], None]] = {
    "whole": _whole,
    "streamed": _streamed,
    "tool": _tool,
    "structured": _structured,
}


def way() -> str:
    """Return the way that this process checks."""
    return sys.argv[1]


def run(
    *,
    whole: Callable[[Case], Any],
    streamed: Callable[[Case], Any],
    tool: Callable[[Case], Any],
    structured: Callable[[Case], Any],
) -> None:
    """Run a library's functions in the way and at the servers of the command line, and print the results.

    Args:
        whole: returns the text of an answer.
        streamed: returns the texts of a streamed answer.
        tool: returns the name and the arguments (a JSON text or a dict) of the tool call in an answer.
        structured: returns the city of a structured answer.
    """
    functions = {"whole": whole, "streamed": streamed, "tool": tool, "structured": structured}
    for server, (model, tool_model) in json.loads(sys.argv[2]).items():
        case = Case(way(), server, model, tool_model, os.environ.get("OPENAI_BASE_URL"))
        for check, function in functions.items():
            error = _outcome(case, check, function)
            line = {"server": server, "check": check, "error": error}
            print("\n" + json.dumps(line), flush=True)
    sys.stdout.flush()
    os._exit(0)  # threads of telemetry must not delay the end


def _outcome(case: Case, check: str, function: Callable[[Case], Any]) -> str | None:
    signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, _CHECK_S)
    try:
        got = function(case)
        if inspect.iscoroutine(got):
            got = asyncio.run(got)
        _VERIFY[check](case, got)
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is its result
        traceback.print_exc()
        while error.__cause__ is not None:
            error = error.__cause__
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _too_slow(*_: Any) -> None:
    raise TimeoutError(f"no result in {_CHECK_S:.0f} s")
