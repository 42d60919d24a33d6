"""The /metrics page: its values match the calls, read by Prometheus' parser and by specclient's own."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer, hang, reply
from prometheus_client.parser import text_string_to_metric_families

from specclient.serving.limits import Limits
from specclient.serving.metrics import accepted_by_position
from specclient.telemetry.prometheus import counters_delta, parse_counters
from specclient.types.usage import Speculation

Connect = Callable[[str], openai.OpenAI]
ASK: Any = {"messages": [{"role": "user", "content": "a secret question"}]}


def text_of(served: Served, key: str | None = None) -> str:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{served.url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def samples(text: str) -> dict[tuple[str, frozenset[str]], float]:
    """Return sample values by metric name and set of label values."""
    return {
        (sample.name.removeprefix("specclient:"), frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(found: dict[tuple[str, frozenset[str]], float], name: str, *labels: str) -> float:
    return found[name, frozenset(labels)]


def test_requests_tokens_cost_and_latencies_are_counted(connect: Connect, gateway: Served) -> None:
    client = connect(gateway.base_url)
    whole = client.chat.completions.create(model="mine/m-large", **ASK)
    list(client.chat.completions.create(model="mine/m-large", stream=True, **ASK))
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nowhere/m", **ASK)
    assert whole.usage is not None
    text = text_of(gateway)
    assert "secret" not in text
    found, model = samples(text), "mine/m-large"
    route = "/v1/chat/completions"
    assert value(found, "http_requests_total", "POST", route, "200") == 2
    assert value(found, "http_requests_total", "POST", route, "404") == 1
    assert value(found, "calls_total", model, "ok") == 2
    assert value(found, "prompt_tokens_total", model) == 2 * whole.usage.prompt_tokens
    assert value(found, "generation_tokens_total", model) == 2 * whole.usage.completion_tokens
    price = Decimal(2 * whole.usage.prompt_tokens + 8 * whole.usage.completion_tokens) / 10**6
    assert value(found, "cost_dollars_total", model) == pytest.approx(float(2 * price))
    assert value(found, "time_to_first_token_seconds_count", model) == 1
    assert value(found, "request_time_per_output_token_seconds_count", model) == 1
    assert value(found, "e2e_request_latency_seconds_count", route) == 2
    assert value(found, "request_queue_time_seconds_count") == 2
    assert value(found, "num_requests_running") == value(found, "num_requests_waiting") == 0
    assert value(found, "requests_refused_total", "model_not_found") == 1


def test_running_and_waiting_requests_are_reported(connect: Connect, openai_server: OpenAIServer) -> None:
    openai_server.script(hang)
    limits = Limits(running=1, waiting=5, grace_s=1)
    wanted = {"num_requests_running": 1.0, "num_requests_waiting": 1.0}
    with Served(upstream_settings(openai_server), limits=limits) as served, ThreadPoolExecutor(2) as threads:
        client = connect(served.base_url)

        def call() -> None:
            with pytest.raises(openai.APIError):
                client.chat.completions.create(model="mine/m-large", **ASK)

        def reported() -> bool:
            found = samples(text_of(served))
            return {name: value(found, name) for name in wanted} == wanted

        calls = [threads.submit(call) for _ in range(2)]
        assert wait_until(reported)
        served.stop()
        for done in calls:
            done.result()


def test_clients_cannot_create_metric_series(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    client = connect(gateway.base_url)
    wrong = reply(404, {"error": {"message": "no such model", "type": "t", "param": None, "code": None}})
    openai_server.script(*[wrong] * 5)
    for number in range(5):
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=f"mine/made-up-{number}", **ASK)
        with pytest.raises(openai.NotFoundError):
            client.get(f"/made-up-{number}", cast_to=object)
        with pytest.raises(openai.NotFoundError):
            client.get(f"/../made-up-{number}", cast_to=object)
        made_up = urllib.request.Request(f"{gateway.url}/v1/models", method=f"MADE-UP-{number}")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(made_up, timeout=10)
        caught.value.close()
    text = text_of(gateway)
    assert "made-up" not in text.lower()
    assert value(samples(text), "calls_total", "other", "error") == 5


def test_a_scraper_needs_the_key(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), key="sk-ours") as served:
        with pytest.raises(urllib.error.HTTPError) as caught:
            text_of(served)
        caught.value.close()
        assert caught.value.code == 401
        found = samples(text_of(served, "sk-ours"))
        assert value(found, "requests_refused_total", "invalid_api_key") == 1


def test_budget_refusals_are_counted(connect: Connect, openai_server: OpenAIServer, tmp_path: Path) -> None:
    more = {
        "ledger": str(tmp_path / "ledger.db"),
        "budgets": {"day": {"usd": "0.000001", "period": "day"}},
    }
    with Served(upstream_settings(openai_server, **more)) as served:
        with pytest.raises(openai.RateLimitError):
            connect(served.base_url).chat.completions.create(model="mine/m-large", **ASK)
        found = samples(text_of(served))
    assert value(found, "budget_refusals_total") == 1
    assert value(found, "requests_refused_total", "insufficient_quota") == 1


def test_the_scrapers_counter_parser_reads_the_page(connect: Connect, local_server: Served) -> None:
    client = connect(local_server.base_url)
    text_before = text_of(local_server)
    before, by_position_before = parse_counters(text_before), _accepted_by_position(text_before)
    reported = []
    for length in (3, 4):
        ours = {"draft_length": length, "meta": True}
        answer = client.completions.create(
            model="local/demo",
            prompt="def f(x):",
            max_tokens=40,
            temperature=0,
            extra_body={"specclient": ours},
        )
        reported.append(answer.model_extra["specclient"]["speculation"])  # type: ignore[index]
    text = text_of(local_server)
    moved = counters_delta(before, parse_counters(text))
    assert moved is not None
    for name in ("drafted", "accepted", "steps"):
        assert getattr(moved, name) == sum(each[name] for each in reported) > 0
    # Other tests use this server, too, some with decoding methods that report no positions.
    assert _accepted_by_position(text) - by_position_before == moved.accepted
    found = samples(text)
    assert value(found, "engine_num_requests", "local/demo") == 0
    assert value(found, "engine_busy_seconds", "local/demo") > 0
    assert '"loaded":["local/demo"' in _get(f"{local_server.url}/ready")


def _accepted_by_position(text: str) -> float:
    """The accepted tokens of all draft positions on a page of metrics."""
    return sum(
        number for (name, _), number in samples(text).items() if "accepted_tokens_per_pos_total" in name
    )


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_accepted_tokens_are_counted_by_position_where_known() -> None:
    even = Speculation(drafted=12, accepted=6, steps=4, per_position=(1.0, 0.5, 0.0))
    assert accepted_by_position(even) == [4, 2, 0]
    assert (
        accepted_by_position(Speculation(drafted=11, accepted=6, steps=4, per_position=(1.0, 0.5, 0.0))) == ()
    )
    assert (
        accepted_by_position(Speculation(drafted=12, accepted=7, steps=4, per_position=(1.0, 0.5, 0.0))) == ()
    )
    assert accepted_by_position(
        Speculation(drafted=11, accepted=6, steps=4, accepted_per_position=(4, 2))
    ) == (4, 2)
    assert accepted_by_position(Speculation(drafted=1)) == ()


WORKER = """
import sys
from datetime import UTC, datetime
from specclient.serving.metrics import ServerMetrics
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import Usage
metrics = ServerMetrics(lambda: ["p/m"], lambda: (int(sys.argv[1]), 0), list)
call = Call(id="c", started_at=datetime.now(UTC), operation="chat", model="m", status="ok",
            route=Decision("p/m", "p", "m"), usage=Usage(prompt=1, completion=int(sys.argv[1])))
metrics.observe(call)
metrics.update_load()
print(metrics.load()[0], flush=True)
sys.stdout.buffer.write(metrics.text()) if len(sys.argv) > 2 else None
sys.stdout.flush()
sys.stdin.read()
"""


def test_processes_behind_one_port_report_their_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WORKER, "3"], **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "3\n"
        with subprocess.Popen([sys.executable, "-c", WORKER, "4", "tell"], **pipes) as second:
            reported, _ = second.communicate(timeout=60)
        first.communicate(timeout=60)
    running, _, text = reported.partition("\n")
    assert running == "7"
    found = samples(text)
    assert value(found, "generation_tokens_total", "p/m") == 7
    assert value(found, "num_requests_running") == 7
