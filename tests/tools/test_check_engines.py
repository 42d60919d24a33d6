"""The runner of the real servers' checks: its page, and its checks against a served engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import anyio
import pytest
from gateway_server import Served
from paths import ROOT

from specclient import AsyncOpenAI, Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def _tools() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


def test_the_page_is_written_from_the_results() -> None:
    from engines.page import PAGE, page_of_files

    assert PAGE.read_text(encoding="utf-8") == page_of_files()


def test_the_page_tells_failures_and_what_was_not_checked() -> None:
    from engines.page import page

    head = {"version": "1.2", "date": "2026-01-01"}
    text = page({
        "vllm": {**head, "results": {"chat": None, "usage": "3 where `4` was\nexpected"}},
        "transformers": {**head, "failed": "no memory"},
    }, {})  # fmt: skip
    assert "\n| vLLM, draft model | 1.2 | 2026-01-01 | – | ✔ | – | ✘ |" in text
    assert "- vLLM, draft model, usage: `3 where '4' was expected`" in text
    assert "- transformers serve did not start: `no memory`" in text
    assert "- transformers serve, remote: not checked, it scores no prompts" in text
    assert "vLLM, plain" not in text


def test_the_page_tells_what_became_of_a_fleet() -> None:
    from engines.page import page

    head = {"version": "2.0", "date": "2026-01-01"}
    update = {
        "answered": 3, "errors": {"InternalServerError: gone": 2}, "finished": [1.0, 12.0, 30.0],
        "events": [[10.0, "update begun"], [25.0, "update done"], [26.0, "draft length 3.0"]],
    }  # fmt: skip
    killed = {"with failover": {"the undisturbed text": 16}, "without": {"APIConnectionError": 9}}
    text = page({}, {
        "killed_replica": {**head, **killed},
        "update": {**head, **update},
        "autoscaling": {**head, "failed": "no replicas"},
    })  # fmt: skip
    assert "Ray\nServe LLM 2.0 (2026-01-01)" in text
    assert "| with failover | 16 | the undisturbed text |" in text
    assert "| without failover | 9 | APIConnectionError |" in text
    assert "in 15 s: 3 calls answered, 2 failed (2 × InternalServerError: gone); answered during" in text
    assert "during the replacement: 1. Draft length 3.0 afterwards." in text
    assert "- autoscaling: failed, no replicas" in text


def test_a_gateway_stands_before_a_checked_server() -> None:
    from engines.catalogue import ENGINES, engine_named

    names = [engine.name for engine in ENGINES]
    assert len(set(names)) == len(names)
    gateways = [engine for engine in ENGINES if engine.behind]
    assert {engine_named(engine.behind).behind for engine in gateways} == {""}


async def test_the_checks_tell_a_right_answer_from_a_wrong_one() -> None:
    from engines.checked_engine import DRAFT, CheckedEngine
    from engines.checks import Bench, bench_settings, chat, stop, streams, usage

    def engine(model: str) -> CheckedEngine:
        return CheckedEngine("own", "own", "specclient", "", "specclient", model, (), lambda _: [])

    def serve() -> Served:
        local = {"threads": 1, "models": {"small": {"path": str(DRAFT)}}}
        return Served(Settings.model_validate({"local": local}), ledger="off")

    served = await anyio.to_thread.run_sync(serve)
    with served:
        right = engine("local/demo-target")
        settings = bench_settings(right, served.base_url)
        async with AsyncOpenAI(config=settings, ledger="off", max_retries=0) as client:
            for check in (chat, streams, usage, stop):
                await check(Bench(right, served.base_url, client))
            wrong = engine("local/small")
            with pytest.raises(AssertionError, match="was expected"):
                await chat(Bench(wrong, served.base_url, client))
