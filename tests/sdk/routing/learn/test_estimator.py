"""Estimates follow finished calls; without calls they say that nothing was measured."""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import threading
from datetime import timedelta

import pytest
from finished_calls import NOW, about, call, estimates
from hypothesis import given
from hypothesis import strategies as st

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.routing.learn import estimate_cache as cache_module
from specclient.routing.learn import estimator as module
from specclient.routing.learn.answer_length import ASSUMED
from specclient.routing.learn.call_sample import WARM_UP_TAG, CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.ledger_forecast import COMPLETION_TOKENS, WINDOW, LedgerForecast
from specclient.routing.learn.priors import PRIORS
from specclient.routing.learn.speed import timing_of
from specclient.runtime.forks import import_lock
from specclient.types.policy import Policy
from specclient.types.route import Candidate, Decision
from specclient.types.usage import Usage


def test_without_calls_only_the_bundled_pair_has_a_prior():
    made = estimates()
    assert made.predict("openai/gpt-4.1") == LedgerForecast(completion_tokens=COMPLETION_TOKENS)
    prior = PRIORS["local/demo"]
    local = made.predict("local/demo", max_tokens=100)
    assert local.engine_s == local.latency_s == pytest.approx(prior.ttft_s + 100 * prior.token_s)
    assert local.evidence == 0


def test_the_first_call_replaces_the_prior():
    made = estimates(call(route="local/demo", tokens=10, latency_s=9.0, engine_s=8.0)).predict("local/demo")
    assert (made.completion_tokens, made.engine_s, made.evidence) == (10, about(8.0), 1)
    assert made.latency_s == about(8.0), (
        "the engine's own seconds: the next call does not load the weights again"
    )


def test_candidates_are_compared_for_the_same_answer_length():
    made = estimates(
        call("a", route="x/short", tokens=10, latency_s=1.0),
        call("b", route="x/long", tokens=1000, latency_s=10.0),
    )
    short, long, unknown = made.compare(["x/short", "x/long", "x/unknown"])
    assert short.completion_tokens == long.completion_tokens == unknown.completion_tokens
    assert 10 <= (length := short.completion_tokens) <= 1000
    assert (short.latency_s, long.latency_s) == (about(length * 0.1), about(length * 0.01))
    assert {f.completion_tokens for f in made.compare(["x/short", "x/long"], max_tokens=7)} == {7}


@pytest.mark.parametrize(
    "useless", [{"status": "error"}, {"status": "cancelled"}, {"usage": Usage()}, {"tokens": 0}]
)
def test_failed_cancelled_and_empty_calls_are_no_evidence(useless):
    assert estimates(call(**useless)).predict("x/y").evidence == 0


def test_only_the_newest_calls_of_a_route_count():
    made = estimates(call("old", latency_s=99.0), *(call(f"c{n}", latency_s=1.0) for n in range(WINDOW)))
    newest = made.predict("x/y")
    assert (newest.completion_tokens, newest.ttft_s) == (about(100), None)
    assert (newest.latency_s, newest.evidence) == (about(1.0), WINDOW)


def test_each_route_has_its_own_estimate():
    made = estimates(call(route="x/y", latency_s=1.0), call(route="x/z", latency_s=5.0))
    assert (made.predict("x/y").latency_s, made.predict("x/z").latency_s) == (about(1.0), about(5.0))


class Clock:
    """A clock that the test advances; calls end at its time."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def on(self, seconds):
        self.now += timedelta(seconds=seconds)


def learned(
    clock, *, count=30, route="x/y", task="chat", tokens=100, prompt=10, times=1.0, session=None, into=None
):
    made = into or Estimator(now=clock)
    rng = random.Random(len(route) + tokens)
    for _ in range(count):
        clock.on(1)
        ttft = 0.5 * times * rng.lognormvariate(0, 0.1)
        made.learn(
            CallSample(
                route=route,
                task=task,
                at=clock.now.timestamp(),
                ttft_s=ttft,
                latency_s=ttft + 0.01 * tokens * times * rng.lognormvariate(0, 0.1),
                prompt_tokens=prompt,
                completion_tokens=tokens,
                session=session,
            )
        )
    return made


def test_an_estimate_is_cached_until_a_call_or_time_changes_it():
    clock = Clock()
    made = learned(clock, count=8)
    first, version = made.of("x/y", "chat"), made.current_version()
    assert made.of("x/y", "chat") is first
    assert made.all_of(["x/y"], "chat")[0] is first
    assert made.of("x/y", "chat", 0.5) is not first
    assert made.current_version() == version
    learned(clock, count=1, into=made)
    assert made.of("x/y", "chat") is not first
    assert made.current_version() > version
    again = made.of("x/y", "chat")
    learned(clock, count=1, route="x/z", into=made)
    assert made.of("x/y", "chat") is again, "another route's calls change nothing here"
    clock.on(120)
    assert made.of("x/y", "chat").evidence < again.evidence, "time passing does"


def test_a_finished_call_is_learned_at_the_next_estimate():
    made = estimates(*(call(f"c{n}", ttft_s=0.5) for n in range(10)))
    assert made.of("x/y").calls == 10
    assert made.of("x/y", "code").token_s == about(0.015), "an unseen task uses all tasks' calls"
    assert made.of("z/never").ttft_s is None
    assert made.of("local/demo").assumed


def test_lengths_follow_task_prompt_and_session():
    clock = Clock()
    made = learned(clock, tokens=50, prompt=20)
    learned(clock, tokens=800, prompt=5000, task="document", into=made)
    learned(clock, tokens=300, prompt=5000, into=made, session="s")
    chat, long, document = (
        made.length(task, prompt) for task, prompt in (("chat", 20), ("chat", 5000), ("document", 5000))
    )
    assert (chat.median, long.median, document.median) == (about(50), about(300), about(800))
    assert all(each.low <= each.median <= each.high for each in (chat, long, document))
    assert chat.measured
    learned(clock, count=14, tokens=20, prompt=20, into=made, session="s")
    assert made.length("chat", 20, session="s").median < made.length("chat", 20).median
    assert made.length("chat", 20, session="unknown") == made.length("chat", 20)
    assert made.length("chat", 20, max_tokens=7) == dataclasses.replace(chat, low=7, median=7, high=7)
    assert Estimator().length("code", 100) == ASSUMED
    assert not Estimator().length("code", 100, max_tokens=10).measured


@given(
    st.lists(st.integers(1, 10**5), max_size=30),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(0, 10**6),
)
def test_an_interval_of_lengths_is_ordered_and_within_the_limit(tokens, limit, prompt):
    made = Estimator()
    for n, each in enumerate(tokens):
        made.learn(CallSample(route="x/y", at=n, latency_s=1, completion_tokens=each, prompt_tokens=prompt))
    length = made.length(None, prompt, limit)
    assert 0 <= length.low <= length.median <= length.high
    assert limit is None or length.high <= limit
    assert length.measured == bool(tokens)


def test_the_interval_of_lengths_contains_80_percent_of_answers():
    clock, rng, within = Clock(), random.Random(1), 0
    made = Estimator(now=clock)
    for n in range(600):
        tokens = max(1, round(rng.lognormvariate(5, 0.7)))
        length = made.length("chat", 100)
        within += n >= 100 and length.low <= tokens <= length.high
        learned(clock, count=1, tokens=tokens, prompt=100, into=made)
    assert within / 500 == pytest.approx(0.8, abs=0.06)


def test_stats_are_listed_by_route_and_task():
    clock = Clock()
    made = learned(clock)
    learned(clock, route="a/b", task="code", tokens=10, into=made)
    clock.on(60)
    rows = made.stats()
    assert [(row.route, row.task, row.calls) for row in rows] == [
        ("a/b", None, 30),
        ("a/b", "code", 30),
        ("x/y", None, 30),
        ("x/y", "chat", 30),
    ]
    assert rows[1].length.median == about(10)
    assert rows[1].estimate == made.of("a/b", "code")
    assert (rows[0].age_s, rows[0].slow, rows[0].failing) == (60, False, False)
    learned(clock, count=20, times=6, into=made)
    assert made.stats()[2].slow


def test_the_estimators_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "ROUTES", 20)
    monkeypatch.setattr(cache_module, "_KEPT", 50)
    clock = Clock()
    made = Estimator(now=clock)
    for n in range(200):
        learned(clock, count=1, route=f"x/{n}", into=made, session=f"s{n}")
        made.all_of([f"x/{n}", "x/0"], "chat")
    assert len(made.stats()) == 2 * 20
    assert len(made._cache) <= 52
    assert len(made._expiries) <= 200
    for _ in range(500):
        learned(clock, count=1, route="x/0", into=made)
        made.of("x/0", "chat")
    assert len(made._expiries) <= 220, "one expiry per route, however many calls"
    for n in range(3000):
        made.observe(call(f"c{n}"))
    assert len(made._fresh) <= module.PENDING


def test_draft_verify_and_failed_retry_rows_do_not_count_as_answers():
    rows_of = [
        dataclasses.replace(LedgerRow.of(call(str(n), latency_s=1)), purpose=purpose, status=status)
        for n, (purpose, status) in enumerate(
            [("call", "ok"), ("retry", "error"), ("draft", "ok"), ("verify", "ok"), ("hedge", "ok")]
        )
    ]
    samples = [CallSample.of_row(row) for row in rows_of]
    assert samples[1] is None
    assert [each.completion_tokens for each in samples if each] == [100, None, None, 100]
    live = [CallSample.of(call(purpose=p)) for p in ("call", "draft", "verify", "hedge", "failover")]
    assert [each.completion_tokens for each in live] == [100, None, None, 100, 100]


@pytest.mark.parametrize(
    ("error", "http_status", "failed"),
    [
        ("APITimeoutError", None, True),
        ("APIConnectionError", None, True),
        ("EngineError", None, True),
        ("response.failed", None, True),
        ("InternalServerError", 500, True),
        ("RateLimitError", 429, True),
        ("BadRequestError", 400, None),
        ("UnsupportedParameterError", None, None),  # the provider's API cannot express the request
        ("ContextOverflowError", None, None),
        ("BudgetExceededError", None, None),
        ("DeadlineExceededError", None, None),  # little of the deadline may have been left
    ],
)
def test_only_errors_of_the_route_count_as_its_failures(error, http_status, failed):
    ended = call(status="error", error=error, http_status=http_status)
    for sample in (CallSample.of(ended), CallSample.of_row(LedgerRow.of(ended))):
        assert (None if sample is None else sample.failed) is failed


def test_threads_may_estimate_and_learn_concurrently():
    made, broken = Estimator(), []
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(own):
        rng = random.Random(own)
        try:
            for n in range(300):
                route = f"x/{rng.randrange(4)}"
                made.observe(call(f"{own}-{n}", route=route, ttft_s=0.1))
                assert made.of(route, "chat").calls > 0
                assert made.length("chat", 10).median > 0
                if n % 50 == 0:
                    made.note_load("x", None)
                    made.stats()
        except Exception as error:  # noqa: BLE001 - reported by the test's main thread
            broken.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch)
    assert not broken
    assert sum(row.calls for row in made.stats() if row.task is None) == 4 * 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_works_though_another_thread_held_the_lock():
    made = learned(Clock())
    held, done = threading.Event(), threading.Event()

    def hold():
        with made._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if made.of("x/y", "chat", 0.77).calls == 30 else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def decided(count, policy, chosen=0):
    candidates = tuple(
        Candidate(route=f"x/{n}", verdict="chosen" if n == chosen else "left") for n in range(count)
    )
    return Decision(
        chosen=f"x/{chosen}",
        provider="x",
        model=str(chosen),
        candidates=candidates,
        policy=policy,
        task="code" if policy else None,
        explored=True,
        chosen_index=chosen,
    )


@pytest.mark.parametrize("chosen", [0, 7, 40])
def test_the_ledger_stores_the_task_and_at_most_eight_candidates_with_the_chosen_one(chosen):
    policy = Policy(minimize={"cost": 1, "latency": 0.002})
    kept = LedgerRow.of(dataclasses.replace(call(), route=decided(50, policy, chosen))).decision
    assert (kept["task"], kept["explored"], kept["considered"]) == ("code", True, 50)
    assert kept["minimize"] == {"cost": 1.0, "latency": 0.002}
    assert len(kept["candidates"]) == 8
    assert [c["route"] for c in kept["candidates"] if c["verdict"] == "chosen"] == [f"x/{chosen}"]


def test_the_task_of_a_routed_call_is_learned_from_the_ledger(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite3"))
    routed = dataclasses.replace(call(ttft_s=0.5), route=decided(2, Policy()))
    ledger.submit(routed)
    earlier = estimates(history=ledger).stats()
    assert [(row.route, row.task) for row in earlier] == [("x/0", None), ("x/0", "code")]
    ledger.close()


def test_calls_that_only_measure_a_route_teach_its_speed_and_no_lengths():
    made = Estimator(priors={}, now=Clock())
    measured = {"route": "x/y", "latency_s": 1.5, "ttft_s": 0.5, "prompt_tokens": 20, "completion_tokens": 48}
    for n in range(5):
        made.learn(CallSample(at=NOW.timestamp() + n, warm_up=True, **measured))
    assert made.length(None, 20) == ASSUMED
    assert made.of("x/y").token_s == about(1 / 48)
    tagged = call(tags={WARM_UP_TAG: "1"})
    assert CallSample.of(tagged).warm_up
    assert CallSample.of_row(LedgerRow.of(tagged)).warm_up
    assert not CallSample.of(call()).warm_up


def test_a_refusal_by_a_rate_limit_is_told_from_other_failures():
    for status, refused in ((429, True), (503, False)):
        ended = call(status="error", error="APIStatusError", http_status=status)
        for sample in (CallSample.of(ended), CallSample.of_row(LedgerRow.of(ended))):
            assert (sample.failed, sample.refused) == (True, refused)


def test_cached_tokens_need_no_prefill():
    usage = Usage(prompt=10_000, completion=100, cached=9_900)
    whole = dataclasses.replace(usage, cached=None)
    for billed, read in ((usage, 100), (whole, 10_000), (dataclasses.replace(usage, cached=10_000), 1)):
        finished = call(usage=billed, ttft_s=0.5)
        for sample in (CallSample.of(finished), CallSample.of_row(LedgerRow.of(finished))):
            assert timing_of(sample).prompt == read


def test_the_ledger_is_read_while_another_thread_imports(tmp_path):
    """A first routed call reads the ledger with `import_lock` held; reading it needs that lock, too."""
    path, begun, holds = tmp_path / "ledger.sqlite3", threading.Event(), threading.Event()
    acquired = []

    class History:
        def rows(self, since=None, until=None, *, limit=None):
            begun.set()
            holds.wait(0.2)  # in vain if the reader has the lock
            acquired.append(import_lock.acquire(timeout=2))
            import_lock.release()
            return Ledger(str(path)).rows(since, until, limit=limit)

    made = estimates(history=History())

    def prepare():
        begun.wait()
        with import_lock:
            holds.set()
            made.load_history()

    threads = [threading.Thread(target=each, daemon=True) for each in (made.stats, prepare)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert acquired == [True]
