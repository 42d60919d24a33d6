"""A criterion added as one object becomes an option and a column of ``specclient route``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specclient.types.criterion import CRITERIA, Bound, Criterion

pytestmark = pytest.mark.usefixtures("co2")

ARGUMENTS = ("--minimize", "co2_g", "--limit", "max_co2_g=5000")


@pytest.fixture
def co2():
    co2 = Criterion(
        "co2_g",
        "g CO2",
        predict=lambda call: (0.02 if "large" in call.route else 0.01) * call.completion_tokens,
        bounds=(Bound("max_co2_g"),),
    )
    with CRITERIA.added(co2):
        yield


def test_explain_shows_an_added_criterion(run, hosted) -> None:
    code, out, _ = run("route", "explain", "hi", *ARGUMENTS)
    assert (code, "co2 g" in out, "g CO2" in out) == (0, True, True)
    decision = json.loads(run("route", "explain", "hi", *ARGUMENTS, "--json")[1])
    large, small = (candidate["figures"]["co2_g"] for candidate in decision["candidates"])
    assert large == 2 * small > 0
    assert decision["chosen"] == "mine/m-small"
    assert "least co2 g: " in decision["reason"]


def test_a_limit_of_an_added_criterion_refuses_routes(run, hosted) -> None:
    code, out, err = run("route", "explain", "hi", "--limit", "max_co2_g=0.001")
    assert (code, "exceeds max_co2_g 0.001" in " ".join(out.split())) == (4, True)
    assert "change max_co2_g from 0.001 to" in " ".join(err.split())
    code, _, err = run("route", "explain", "hi", "--limit", "max_co2=1")
    assert (code, "one of max_cost_usd, max_latency_s, deadline_s" in " ".join(err.split())) == (2, True)


def test_simulate_shows_an_added_criterion(run) -> None:
    world = ("route", "simulate", "--world", "mixed", "--calls", "200", *ARGUMENTS)
    code, out, _ = run(*world)
    assert (code, "co2 g" in out, "g CO2" in out) == (0, True, True)
    result = json.loads(run(*world, "--json")[1])
    assert result["policy"]["figures"]["co2_g"] > 0


#: A program that adds a criterion with its own option, and then runs the command line.
PROGRAM = """
import sys
from specclient.types.criterion import CRITERIA, Bound, Criterion

bound = Bound("max_water_l", flag="--max-water", help="Rule out routes that need more water, in litres.")
litres = lambda call: (0.2 if "large" in call.route else 0.1) * call.completion_tokens
CRITERIA.add(Criterion("water_l", "l", predict=litres, bounds=(bound,)))

from specclient_cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def with_water(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process whose program has added the criterion."""
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_added_criterions_flag_is_an_option_of_every_command_with_a_policy(hosted) -> None:
    explained = ("route", "explain", "hi", "--max-tokens", "100", "--json")
    large, small = json.loads(with_water(*explained).stdout)["candidates"]
    limit = (large["figures"]["water_l"] + small["figures"]["water_l"]) / 2
    done = with_water(*explained, "--max-water", str(limit))
    assert done.returncode == 0, done.stderr
    decision = json.loads(done.stdout)
    assert decision["chosen"] == "mine/m-small"
    assert "exceeds max_water_l" in decision["candidates"][0]["reason"]
    assert "--max-water" in with_water("complete", "--help").stdout


def test_an_added_criterions_flag_adds_to_a_named_policys_limits(hosted) -> None:
    done = with_water("route", "explain", "hi", "--policy", "cheap", "--max-water", "0.001")
    assert done.returncode == 4, done.stderr
    assert "change max_water_l from 0.001 to" in " ".join(done.stderr.split())
