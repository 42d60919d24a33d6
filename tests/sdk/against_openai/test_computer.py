"""The computer toolset with this package's clients: the same requests, actions and results."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import reply
from openai.lib.computer import ComputerUseError
from openai_calls import RESPONSE

IMAGE = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
CLICK = {"type": "click", "button": "left", "x": 3, "y": 4}
ACTIONS = ("click", "double_click", "drag", "keypress", "move", "scroll", "type", "wait")


def _call(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "type": "computer_call",
        "id": f"cu_{number}",
        "call_id": f"call_{number}",
        "status": "completed",
        "pending_safety_checks": [],
        **fields,
    }


def _answer(*calls: dict[str, Any]) -> Any:
    return reply(200, {**RESPONSE, "id": f"resp_{len(calls)}", "output": list(calls)})


def _driver(side: Side, done: list[Any]) -> Any:
    """Return a driver that notes its actions."""

    def note(name: str) -> Any:
        def sync(_: Any, *action: Any) -> Any:
            done.append([name, *(each.to_dict() for each in action)])
            return IMAGE if name == "screenshot" else None

        async def asynchronous(self: Any, *action: Any) -> Any:
            return sync(self, *action)

        return asynchronous if side.is_async else sync

    return type("Driver", (), {name: note(name) for name in (*ACTIONS, "screenshot")})()


def _run(side: Side, **options: Any) -> Any:
    done: list[Any] = []
    kind = side.lib.AsyncComputerToolset if side.is_async else side.lib.ComputerToolset
    params = {"model": "computer-use", "input": "Open the door."}
    try:
        response = side.get(kind(_driver(side, done)).run(side.client, params, **options))
    except ComputerUseError as stopped:
        return [str(stopped), done]
    return [response, done]


def _approve(call: Any) -> bool:
    return bool(call.call_id == "call_1")


async def _approve_later(call: Any) -> bool:
    return _approve(call)


def test_a_run_acts_until_the_final_message(both: Both) -> None:
    answers = (_answer(_call(1, actions=[CLICK])), _answer(_call(2, action=CLICK)), reply(200, RESPONSE))
    outcome = both.same(_run, *answers)
    assert len(outcome.sent) == 3
    assert [name for name, *_ in outcome.result[1]] == ["click", "screenshot"] * 2


def test_safety_checks_stop_a_run_that_does_not_approve_them(both: Both) -> None:
    checks = [{"id": "c", "code": "malicious_instructions", "message": "careful"}]
    asked = _answer(_call(1, actions=[CLICK], pending_safety_checks=checks))
    assert "explicit approval" in both.same(_run, asked).result[0]
    outcome = both.same(
        lambda side: _run(side, approve_safety_checks=_approve_later if side.is_async else _approve),
        asked,
        reply(200, RESPONSE),
    )
    assert outcome.result[0]["class"] == "Response"


def test_a_run_ends_at_its_number_of_steps(both: Both) -> None:
    outcome = both.same(lambda side: _run(side, max_steps=1), _answer(_call(1, actions=[CLICK])))
    assert "max_steps" in outcome.result[0]


@pytest.mark.parametrize("code", ["specclient.ComputerToolset", "from specclient import ComputerDriver"])
def test_a_missing_package_is_named(code: str) -> None:
    program = f"import sys; sys.modules['openai'] = None\nimport specclient\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError" in done.stderr
    assert "pip install 'specclient[computer]'" in done.stderr
