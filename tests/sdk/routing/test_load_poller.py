"""Server load is read from metrics pages concurrently with calls, without delaying or breaking them."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from gateway_server import Served, upstream_settings
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import Behaviour, OpenAIServer, behave, hang, reply

from specclient import AsyncOpenAI, OpenAI, Policy, Provider
from specclient.routing import load_poller as module
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.server_load import load_between, read_load
from specclient.routing.load_poller import INTERVAL_S, MOST_S, LoadPoller
from specclient.telemetry.formats import SERVER_METRICS
from specclient.telemetry.prometheus import samples
from specclient.types.server_load import ServerLoad

ASK: Any = [{"role": "user", "content": "hi"}]

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-32B"} 2.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-32B"} 4.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-32B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-32B",reason="capacity"} 4.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-32B"} 0.62
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-32B"} 0.41
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="Qwen/Qwen3-32B"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="Qwen/Qwen3-32B"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="Qwen/Qwen3-32B"} 150.0
"""
SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"} 16.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct",priority="",tp_rank="0"} 7.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct",priority="1",tp_rank="0"} 7.0
# HELP sglang:token_usage The token usage
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"} 0.28
sglang:spec_accept_length{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"} 2.8
sglang:spec_accept_rate{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"} 0.6
"""
LLAMACPP = """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
llamacpp:n_busy_slots_per_decode 1.5
llamacpp:spec_decode_num_drafts_total 40
llamacpp:spec_decode_num_draft_tokens_total 120
llamacpp:spec_decode_num_accepted_tokens_total 90
"""
TRTLLM = """\
# HELP trtllm_num_requests_running Number of active requests
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="undefined",model_name="TinyLlama"} 12.0
trtllm_num_requests_waiting{engine_type="undefined",model_name="TinyLlama"} 0.0
trtllm_max_num_active_requests{engine_type="undefined",model_name="TinyLlama"} 16.0
trtllm_kv_cache_utilization{engine_type="undefined",model_name="TinyLlama"} 0.5
trtllm_spec_decode_acceptance_length{engine_type="undefined",model_name="TinyLlama"} 2.1
"""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, ServerLoad(running=5, waiting=4, cache_use=0.62)),
        (VLLM.replace("kv_cache", "gpu_cache"), ServerLoad(running=5, waiting=4, cache_use=0.62)),
        (SGLANG, ServerLoad(16, 7, cache_use=0.28, acceptance_rate=0.6, tokens_per_verification=2.8)),
        (LLAMACPP, ServerLoad(running=2, waiting=1)),
        (TRTLLM, ServerLoad(12, 0, slots=16, cache_use=0.5, tokens_per_verification=2.1)),
    ],
)
def test_every_servers_metrics_page_is_read(text: str, load: ServerLoad) -> None:
    reading = read_load(text)
    assert reading is not None
    assert reading.load == load


def test_every_load_metric_of_the_table_is_on_a_test_page() -> None:
    pages = (VLLM, VLLM.replace("vllm:", "specclient:"), SGLANG, LLAMACPP, TRTLLM)
    names = [{name for name, _, _ in samples(page)} for page in pages]
    for server in SERVER_METRICS:
        assert not server.running or any({server.running, server.waiting} <= page for page in names)


def test_acceptance_is_computed_between_two_readings() -> None:
    before = read_load(VLLM)
    after = read_load(
        VLLM.replace("} 100.0", "} 200.0").replace("} 300.0", "} 600.0").replace("150.0", "390.0")
    )
    assert before is not None
    assert after is not None
    load = load_between(before, after)
    assert load.acceptance_rate == pytest.approx(240 / 300)
    assert load.tokens_per_verification == pytest.approx(1 + 240 / 100)
    assert load_between(None, after).acceptance_rate is None, (
        "a total since the server's start is no current rate"
    )
    assert load_between(after, before).acceptance_rate is None, "the server restarted"
    assert load_between(after, after).acceptance_rate is None, "nothing was drafted"


@pytest.mark.parametrize(
    "text", ["", "<html>", "process_cpu_seconds_total 12.5", "vllm:num_requests_running NaN"]
)
def test_a_page_without_known_metrics_gives_no_load(text: str) -> None:
    assert read_load(text) is None


@given(
    st.text()
    | st.lists(st.sampled_from([*VLLM.split("\n"), "vllm:num_requests_running{} -1"])).map("\n".join)
)
def test_no_page_raises(text: str) -> None:
    reading = read_load(text)
    assert reading is None or reading.load.running >= 0


def with_metrics_page(page: Behaviour) -> Behaviour:
    """Answer as an OpenAI-compatible server with a metrics page."""

    async def run(received: Any, wire: Any) -> None:
        await (page if received.path.endswith("/metrics") else behave)(received, wire)

    return run


def metrics_requests(server: OpenAIServer) -> list[str]:
    return [each.path for each in server.requests if each.path.endswith("/metrics")]


async def wait_until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true within five seconds")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("vllm", VLLM, "/metrics"),
        ("sglang", SGLANG, "/metrics"),
        ("llamacpp", LLAMACPP, "/metrics"),
        ("tensorrt-llm", TRTLLM, "/prometheus/metrics"),
    ],
)
async def test_a_candidates_load_is_read_concurrently_with_a_routed_call(
    name: str, text: str, path: str
) -> None:
    with OpenAIServer(with_metrics_page(reply(200, text.encode()))) as server:
        places = [Provider(name=name, base_url=server.base_url, key="sk-mine")]
        async with AsyncOpenAI(providers=places, candidates=[f"{name}/m-small"], ledger="off") as client:
            await client.chat.completions.create(model=f"{name}/m-small", messages=ASK)
            assert metrics_requests(server) == [], "a named model needs no load"
            estimates = client.core.shared.estimates
            for _ in range(3):
                await client.chat.completions.create(model="auto", messages=ASK)
            await wait_until(lambda: estimates.load(f"{name}/m-small") is not None)
            assert metrics_requests(server) == [path], "one reading per interval, however many calls are made"
            reading = read_load(text)
            assert reading is not None
            assert estimates.load(f"{name}/m-small") == reading.load
            (page,) = (each for each in server.requests if each.path == path)
            assert page.headers["authorization"] == "Bearer sk-mine"


@pytest.mark.anyio
@pytest.mark.parametrize("page", [hang, reply(404, b"no"), reply(200, b"\xff\xfe not a page"), reply(500)])
async def test_an_unreadable_page_neither_delays_nor_breaks_a_call(page: Behaviour) -> None:
    before = asyncio.all_tasks()
    with OpenAIServer(with_metrics_page(page)) as server:
        places = [Provider(name="vllm", base_url=server.base_url)]
        async with AsyncOpenAI(providers=places, candidates=["vllm/m-small"], ledger="off") as client:
            for _ in range(3):
                answer = await client.chat.completions.create(model="auto", messages=ASK)
                assert answer.choices[0].message.content
            await wait_until(lambda: metrics_requests(server))
            assert client.core.shared.estimates.load("vllm/m-small") is None
            (read,) = client.core.shared.polls._readings._readings.values()
        assert len(metrics_requests(server)) == 1
        assert read.failures == (page is not hang), "a hanging reading is cancelled with the client"
    assert asyncio.all_tasks() == before


@pytest.mark.anyio
async def test_one_reading_serves_all_copies_of_a_client() -> None:
    with OpenAIServer(with_metrics_page(reply(200, VLLM.encode()))) as server:
        places = [Provider(name="vllm", base_url=server.base_url)]
        async with AsyncOpenAI(providers=places, candidates=["vllm/m-small"], ledger="off") as client:
            copies = [client.with_options(timeout=n + 5) for n in range(4)]
            for copy in (client, *copies):
                await copy.chat.completions.create(model="auto", messages=ASK)
            await wait_until(lambda: client.core.shared.estimates.load("vllm/m-small") is not None)
            assert len(metrics_requests(server)) == 1


def test_load_is_read_for_the_synchronous_client_too() -> None:
    with OpenAIServer(with_metrics_page(reply(200, VLLM.encode()))) as server:
        places = [Provider(name="vllm", base_url=server.base_url)]
        with OpenAI(providers=places, candidates=["vllm/m-small"], ledger="off") as client:
            client.chat.completions.create(model="auto", messages=ASK, policy=Policy())
            for _ in range(500):
                if client.core.shared.estimates.load("vllm/m-small"):
                    break
                time.sleep(0.01)
            assert client.core.shared.estimates.load("vllm/m-small") == ServerLoad(5, 4, cache_use=0.62)


@pytest.mark.anyio
async def test_the_load_of_a_specclient_server_is_read(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), key="sk-own") as served:
        places = [Provider(name="specclient", base_url=served.base_url, key="sk-own")]
        route = "specclient/mine/m-small"
        async with AsyncOpenAI(providers=places, candidates=[route], ledger="off") as client:
            await client.chat.completions.create(model="auto", messages=ASK)
            await wait_until(lambda: client.core.shared.estimates.load(route) is not None)
            load = client.core.shared.estimates.load(route)
            assert load is not None
            assert load.waiting == 0
            assert load.running in (0, 1), "depends on whether the page was written before or after the call"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.anyio
async def test_readings_have_jittered_intervals_that_grow_with_failures() -> None:
    clock = Clock()
    with OpenAIServer(with_metrics_page(reply(404, b"no"))) as server:
        places = [Provider(name="vllm", base_url=server.base_url)]
        async with AsyncOpenAI(providers=places, candidates=["vllm/m-small"], ledger="off") as client:
            core = client.core
            reads = LoadPoller(Estimator(), clock=clock, chance=random.Random(1))
            waits = []
            for count in range(1, 12):
                reads.call_routed(core.pipeline.router, core.pipeline.transport)
                (page,) = reads._readings._readings.values()
                assert page.task is not None
                await page.task
                assert len(metrics_requests(server)) == count
                waits.append(page.next_at - clock.now)
                clock.now = page.next_at - 0.01
                reads.call_routed(core.pipeline.router, core.pipeline.transport)
                assert page.task.done(), "too early"
                clock.now = page.next_at
    assert 1.5 * INTERVAL_S < waits[0] < 2.5 * INTERVAL_S
    assert waits[2] > 2 * waits[0]
    assert max(waits) <= MOST_S * (1 + module._JITTER)
    assert len({round(wait / 2**n, 3) for n, wait in enumerate(waits[:5])}) == 5, (
        "every wait has its own jitter"
    )


def test_load_changes_estimates_and_expires() -> None:
    clock = Clock()
    made = Estimator(
        priors={"vllm/m": RoutePrior(0.1, 0.01)}, now=lambda: datetime.fromtimestamp(clock.now, UTC)
    )
    free = made.of("vllm/m")
    version = made.current_version()
    made.note_load("vllm", ServerLoad(running=4, waiting=8))
    queued = made.of("vllm/m")
    assert queued.ttft_s is not None
    assert free.ttft_s is not None
    assert queued.ttft_s > free.ttft_s
    assert made.current_version() > version
    made.note_load("vllm", ServerLoad(running=4, waiting=8))
    assert made.of("vllm/m") is queued, "nothing new"
    clock.now += 20
    made.note_load("vllm", ServerLoad(running=4, waiting=8))
    clock.now += 20
    assert made.of("vllm/m") is queued
    clock.now += 20
    assert made.of("vllm/m") == free
    made.note_load("vllm/m", ServerLoad(running=1, waiting=1))
    assert made.of("vllm/m").ttft_s != free.ttft_s, "a model's own load"
    made.note_load("vllm/m", None)
    assert made.of("vllm/m") == free
