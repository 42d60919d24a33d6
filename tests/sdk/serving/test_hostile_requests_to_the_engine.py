"""Requests to the engine that could end the server or block it: refused with the limit; others are served."""

from __future__ import annotations

import json
import os

import httpx
import pytest
from gateway_server import wait_until
from hostile_grammars import (
    chained_choices,
    chained_gbnf,
    chained_references,
    chained_rules,
    response_format,
    size,
)
from server_process import Bystander, ServerProcess

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and /proc")

RAISED = """
[server]
json_values = 100000000
[server.requests]
choices = 100000000
grammar_bytes = 100000000
grammar_rules = 100000000
grammar_chain = 100000000
grammar_alternatives = 100000000
grammar_repetitions = 100000000
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("server")) as it:
        yield it


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    """A server whose limits let everything pass."""
    with ServerProcess(tmp_path_factory.mktemp("raised"), RAISED) as it:
        yield it


REFERENCES = chained_references(1000, padding=5)
GRAMMARS = {
    "rules": {"guided_grammar": chained_rules(3000)},
    "gbnf": {"guided_grammar": chained_gbnf(3000)},
    "references": {"response_format": response_format(REFERENCES)},
    "choices": {"response_format": response_format(chained_choices(4000))},
    "alternatives": {"guided_choice": [f"choice {i}" for i in range(10_000)]},
    "rule of alternatives": {"guided_grammar": "start: " + " | ".join(f'"choice {i}"' for i in range(9999))},
    "repetitions": {"guided_regex": "a{1000000}"},
    "nested repetitions": {"guided_regex": "((a{1000}){1000}){1000}"},
    "schema beyond JSON": {"guided_json": "[" * 3000},
    "json list": {"guided_grammar": '{"grammars": [{"lark_grammar": "start: \\"x\\""}]}'},
}


def test_what_was_reported_is_what_is_sent():
    assert 60_000 < len(chained_rules(3000)) < 131_072
    assert 120_000 < size(REFERENCES) < 131_072


@pytest.mark.parametrize("kind", GRAMMARS)
def test_a_grammar_beyond_a_limit_is_status_400_and_names_the_limit(server, kind):
    (param,) = GRAMMARS[kind]
    with Bystander(server) as bystander:
        answer = server.complete(prompt="x", **GRAMMARS[kind])
        assert answer.status_code == 400, answer.text
        bystander.check()
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    if kind not in ("json list", "schema beyond JSON"):
        assert error["code"] == "grammar_too_large"
        assert "in [server.requests]" in error["message"]
    assert server.running()


@pytest.mark.parametrize("kind", ["rules", "references", "choices"])
def test_with_the_limits_raised_a_crash_stays_in_the_other_process(raised, kind):
    """More of the same, so that the compiler crashes in any case."""
    more = {
        "rules": {"guided_grammar": chained_rules(20_000)},
        "references": {"response_format": response_format(chained_references(5_000))},
        "choices": {"response_format": response_format(chained_choices(20_000))},
    }
    with Bystander(raised) as bystander:
        for body in (more[kind], more[kind], GRAMMARS[kind]):
            answer = raised.complete(prompt="x", **body)
            assert answer.status_code in (200, 400), answer.text
            assert "guided_regex" not in answer.text
        bystander.check()
    answer = raised.complete(prompt="x", **more[kind])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "grammar_too_large"
    assert "make it simpler" in answer.json()["error"]["message"]
    assert raised.running()
    ordinary = raised.complete(prompt="x", guided_regex="(?:ab|c)" * 300, max_tokens=2)
    assert ordinary.status_code == 200, ordinary.text


@pytest.mark.parametrize(
    "kind", ["alternatives", "rule of alternatives", "repetitions", "nested repetitions"]
)
def test_with_the_limits_raised_large_grammars_are_no_status_500(raised, kind):
    with Bystander(raised) as bystander:
        answer = raised.complete(prompt="x", **GRAMMARS[kind])
        assert answer.status_code in (200, 400), answer.text
        bystander.check()
    assert raised.running()


@pytest.mark.parametrize("stream", [False, True])
def test_very_many_choices_are_status_400(server, stream):
    with Bystander(server) as bystander:
        answer = server.complete(prompt=["x"] * 10_000, n=128, max_tokens=1, stream=stream)
        assert answer.status_code == 400
        bystander.check()
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("prompt", "too_many_choices")
    assert "10000 prompts and n is 128" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_very_many_choices_hold_up_nobody_and_end_with_their_client(raised, stream):
    """With the limit raised: others are served, memory stays, and the work ends when the client leaves."""
    body = {"model": "local/demo", "prompt": ["x"] * 10_000, "n": 128, "max_tokens": 1, "stream": stream}
    assert raised.complete(prompt="x").status_code == 200
    before = raised.resident_bytes()
    with Bystander(raised) as bystander:
        with httpx.Client(base_url=raised.url, timeout=3, trust_env=False) as leaving:
            if stream:
                with leaving.stream("POST", "/v1/completions", json=body) as answer:
                    assert answer.status_code == 200
                    for count, _ in enumerate(answer.iter_lines()):
                        if count > 500:
                            break
            else:
                with pytest.raises(httpx.ReadTimeout):
                    leaving.post("/v1/completions", json=body)
        assert raised.running()
        bystander.check()
    grown = (raised.resident_bytes() - before) / 2**20
    assert grown < 128, f"{grown:.0f} MiB"
    assert wait_until(lambda: _unfinished(raised) == 0, 10), "the work goes on"


def _unfinished(server: ServerProcess) -> float:
    """Return the number of requests in the engine, from the server's metrics."""
    text = server.client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("specclient:engine_num_requests{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_the_figures_of_metrics_are_found(raised):
    assert json.dumps(_unfinished(raised)) == "0.0"
    assert "specclient:engine_num_requests{" in raised.client.get("/metrics").text
