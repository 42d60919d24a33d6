"""Requests of the Responses API to the bundled pair, and results without what differs from call to call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specclient.config import Settings

ASK: Any = {"model": "local/demo", "temperature": 0, "max_output_tokens": 8}
_ID = re.compile(r"\b(resp|msg|fc|call|conv|fco|item)(_local)?_?[0-9a-f]{32}(_\d+)?")


def local_settings(ledger: Path | str, **tables: Any) -> Settings:
    """Return settings with a ledger and one thread for the engine."""
    return Settings.model_validate({"ledger": str(ledger), "local": {"threads": 1}, **tables})


def plain(value: Any) -> Any:
    """Return an object of either library without ids, times, and tokens that the engine had cached."""
    body = value.to_dict(mode="json") if hasattr(value, "to_dict") else value
    text = _ID.sub(r"\1_1", json.dumps(body, sort_keys=True))
    return json.loads(re.sub(r'"(created_at|cached_tokens)": [0-9.]+', r'"\1": 1', text))


def joined(events: list[Any]) -> list[Any]:
    """Return events without their numbers, with one delta for those that follow each other."""
    found: list[Any] = []
    for event in map(plain, events):
        del event["sequence_number"]
        if found and "delta" in event["type"] and found[-1]["type"] == event["type"]:
            found[-1]["delta"] += event["delta"]
            found[-1]["logprobs"] += event["logprobs"]
        else:
            found.append(event)
    return found


def outcome(call: Callable[[], Any]) -> Any:
    """Return a call's result, or the class and the fields of its error."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - of either library
        found: Any = error
        message = re.sub(r"^Error code: \d+ - .*", "", str(error)) or _message(error)
        return [type(error).__name__.replace("UnsupportedParameter", "BadRequest"), found.status_code,
                _ID.sub(r"\1_1", message), found.param, found.code, found.type]  # fmt: skip
    return plain(result)


def _message(error: Any) -> str:
    text: str = error.body["message"]
    return text
