"""The route model: estimates by task, decay, detection of shifts, and robustness to outliers."""

from __future__ import annotations

import random

import pytest

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.drift import FAILING, DriftDetector, FailureRate
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.route_model import MOST_RETRY_S, RETRY_S, RouteModel
from specclient.types.server_load import ServerLoad


class Route:
    """A simulated route whose true speed the test sets; time passes only with calls."""

    def __init__(self, seed=1, *, spread=0.25, ttft_s=0.4, token_s=0.02):
        self.rng = random.Random(seed)
        self.spread, self.ttft_s, self.token_s, self.prompt_token_s = spread, ttft_s, token_s, 0.0
        self.now = 1e9
        self.learned = RouteModel()

    def sample(self, task="chat", *, times=1.0, streamed=True, prompt=100, tokens=None, **more):
        noise = self.rng.lognormvariate
        tokens = tokens or max(1, round(noise(5, 0.5)))
        ttft = (self.ttft_s + self.prompt_token_s * prompt) * times * noise(0, self.spread)
        latency = ttft + tokens * self.token_s * times * noise(0, self.spread)
        return CallSample(
            route="x/y",
            at=self.now,
            task=task,
            ttft_s=ttft if streamed else None,
            latency_s=latency,
            prompt_tokens=prompt,
            completion_tokens=tokens,
            **more,
        )

    def call(self, task="chat", *, after_s=1.0, **how):
        self.now += after_s
        self.learned.learn(self.sample(task, **how), 150)

    def fail(self, *, after_s=1.0):
        self.now += after_s
        self.learned.learn(CallSample(route="x/y", at=self.now, failed=True), 150)

    def calls(self, count, *args, **how):
        for _ in range(count):
            self.call(*args, **how)

    def estimate(self, task="chat", percentile=0.95, **more):
        return self.learned.estimate(task, percentile, self.now, **more)


def test_medians_match_the_routes_true_speed():
    route = Route()
    route.calls(100)
    made = route.estimate()
    assert made.ttft_s == pytest.approx(0.4, rel=0.12)
    assert made.token_s == pytest.approx(0.02, rel=0.12)
    assert made.calls == 100
    assert 20 < made.evidence < 60, "old calls count less"
    assert (made.uncertain, made.assumed, made.retry) == (False, False, False)


@pytest.mark.parametrize("percentile", [0.5, 0.8, 0.95])
def test_the_requested_share_of_calls_stays_below_the_estimated_limits(percentile):
    within = ttft_within = total = 0
    for seed in range(6):
        route = Route(seed, spread=0.4)
        route.calls(80)
        for _ in range(150):
            made, sample = route.estimate(percentile=percentile), route.sample()
            assert made.latency_s(150) * made.p10_factor < made.latency_s(150) * made.limit_factor
            within += sample.latency_s <= made.limit_factor * made.latency_s(150)
            ttft_within += sample.ttft_s <= made.ttft_limit_s
            total += 1
            route.now += 1
            route.learned.learn(sample, 150)
    assert within / total == pytest.approx(percentile, abs=0.03)
    assert ttft_within / total == pytest.approx(percentile, abs=0.03)


def test_a_tenth_of_calls_is_faster_than_the_p10_estimate():
    route, faster = Route(3), 0
    route.calls(200)
    made = route.estimate()
    for _ in range(1000):
        faster += route.sample().latency_s < made.p10_factor * made.latency_s(150)
    assert faster / 1000 == pytest.approx(0.1, abs=0.05)


def test_tasks_have_their_own_estimates_and_rare_tasks_borrow_from_all():
    route = Route()
    for _ in range(60):
        route.call("chat")
        route.call("code", times=0.5)
    chat, code, unseen = (route.estimate(task) for task in ("chat", "code", "document"))
    assert code.token_s == pytest.approx(chat.token_s / 2, rel=0.25)
    assert code.token_s < unseen.token_s < chat.token_s * 1.05
    route.call("document", times=4)
    assert route.estimate("document").token_s < 2 * unseen.token_s, "one call is no evidence yet"
    route.calls(12, "document", times=4)
    assert route.estimate("document").token_s == pytest.approx(0.08, rel=0.3)


def test_ttft_grows_with_the_prompt_where_calls_show_it():
    route = Route(spread=0.05)
    route.prompt_token_s = 1e-4
    for n in range(60):
        route.call(prompt=100 if n % 2 else 20_000)
    short, long = (route.estimate(prompt_tokens=n).ttft_s for n in (100, 20_000))
    assert short < 0.8
    assert long == pytest.approx(2.4, rel=0.25)
    assert route.estimate(prompt_tokens=40_000).ttft_s == pytest.approx(4.4, rel=0.25), (
        "longer prompts than those seen are extrapolated"
    )
    flat = Route()
    for n in range(60):
        flat.call(prompt=100 if n % 2 else 20_000)
    assert flat.estimate(prompt_tokens=100).ttft_s == flat.estimate(prompt_tokens=40_000).ttft_s


def test_unstreamed_calls_borrow_the_ttft_or_infer_it_from_lengths():
    route = Route(spread=0.02)
    route.calls(10)
    route.calls(20, streamed=False)
    assert route.estimate().token_s == pytest.approx(0.02, rel=0.1)
    whole = Route(spread=0.005, ttft_s=2.0)
    for n in range(30):
        whole.call(streamed=False, tokens=20 + 40 * (n % 10))
    assert whole.estimate().ttft_s == pytest.approx(2.0, rel=0.2)
    alike = Route()
    alike.calls(20, streamed=False, tokens=100)
    made = alike.estimate()
    assert made.ttft_limit_s is None, "no call reported a TTFT"
    assert made.latency_s(100) == pytest.approx(2.4, rel=0.2)


def test_a_local_engine_is_estimated_by_its_engine_seconds():
    route = Route()
    for n in range(20):
        route.now += 1
        loading = 8.0 if n in (0, 5) else 0.0
        sample = CallSample(
            route="local/x", at=route.now, completion_tokens=100, latency_s=1 + loading, engine_s=1.0,
            ttft_s=0.2 + loading,
        )  # fmt: skip
        route.learned.learn(sample, 100)
    made = route.estimate(None)
    assert made.engine_token_s == pytest.approx(0.01, rel=0.03)
    assert made.latency_s(100) == pytest.approx(1.0, rel=0.05)
    assert made.limit_factor < 3, "loading weights does not widen the estimate"


@pytest.mark.parametrize("times", [2.0, 3.0, 8.0])
@pytest.mark.parametrize("spread", [0.1, 0.25, 0.4])
def test_a_slowdown_is_noticed_within_20_calls_and_measured_within_50(times, spread):
    for seed in range(10):
        route = Route(seed, spread=spread)
        route.calls(100)
        before = route.estimate().latency_s(150)
        noticed = 0
        for n in range(1, 21):
            route.call(times=times)
            noticed = noticed or n * (route.estimate().latency_s(150) > before * (1 + times) / 2)
        assert 0 < noticed <= 20
        route.calls(30, times=times)
        after = route.estimate()
        assert after.latency_s(150) == pytest.approx(before * times, rel=0.3)
        assert after.limit_factor < 4.5, "the calls of the shift do not widen the estimate for ever"


def test_a_later_ttft_is_noticed_though_total_latency_hides_it():
    route = Route(spread=0.15, token_s=0.1)
    route.calls(80)
    route.ttft_s = 2.4
    route.calls(20)
    assert route.estimate().ttft_s == pytest.approx(2.4, rel=0.25)


def test_a_speedup_is_noticed():
    route = Route()
    route.calls(60, times=4)
    route.calls(20)
    assert route.estimate().token_s == pytest.approx(0.02, rel=0.25)
    assert not route.learned.slow


@pytest.mark.parametrize("times", [20, 1000])
def test_one_outlier_changes_nothing(times):
    route = Route()
    route.calls(60)
    before = route.estimate()
    route.call(times=times)
    for _ in range(3):
        route.call()
        after = route.estimate()
        assert after.latency_s(150) == pytest.approx(before.latency_s(150), rel=0.2)
        assert after.evidence == pytest.approx(before.evidence, rel=0.1)


def test_heavy_tails_cause_few_false_shifts():
    route, rng, alarms = Route(spread=0.3), random.Random(5), 0
    for _ in range(3000):
        was = route.learned.slow
        route.call(times=6 if rng.random() < 0.05 else 1)
        alarms += route.learned.slow and not was
    assert alarms <= 3, "one in 20 calls takes six times as long, which is no shift"


def test_a_slow_route_becomes_due_for_a_retry_at_its_earlier_speed():
    route = Route()
    route.calls(60)
    route.calls(20, times=6)
    slow = route.estimate()
    assert (slow.retry, slow.uncertain) == (False, False)
    route.now += RETRY_S + 1
    retried = route.estimate()
    assert (retried.retry, retried.uncertain) == (True, True)
    assert retried.optimistic_speedup == pytest.approx(6, rel=0.3)
    route.call(times=6, after_s=0)
    assert not route.estimate().retry
    route.now += RETRY_S + 1
    assert not route.estimate().retry, "each retry that finds the route still slow doubles the wait"
    route.now += RETRY_S
    assert route.estimate().retry
    for _ in range(12):
        route.call(times=6, after_s=2 * MOST_RETRY_S)
    assert route.learned.wait_s == MOST_RETRY_S


def test_one_fast_retry_restores_the_earlier_estimate():
    route = Route()
    route.calls(60)
    was = route.estimate()
    route.calls(20, times=6)
    assert route.learned.slow
    route.call(after_s=RETRY_S + 1)
    now = route.estimate()
    assert not route.learned.slow
    assert now.latency_s(150) == pytest.approx(was.latency_s(150), rel=0.1)
    assert (now.retry, now.uncertain) == (False, False)


def test_evidence_decays_with_time():
    route = Route()
    route.calls(50)
    fresh = route.estimate()
    route.now += 3600
    later = route.estimate()
    assert later.evidence == pytest.approx(fresh.evidence / 2, rel=0.1)
    assert later.uncertain
    assert later.optimistic_speedup > fresh.optimistic_speedup
    assert later.latency_s(100) == fresh.latency_s(100), "the estimate itself does not change"


def test_less_evidence_gives_a_higher_optimistic_speedup():
    hopes = []
    for calls in (2, 10, 60):
        route = Route()
        route.calls(calls)
        hopes.append(route.estimate().optimistic_speedup)
    assert hopes == sorted(hopes, reverse=True)
    assert hopes[-1] >= 1


def test_failures_raise_the_rate_and_a_success_resets_it():
    route = Route()
    route.calls(50)
    assert route.estimate().failure_rate < 0.02
    route.fail()
    assert route.estimate().failure_rate < FAILING, "one failure is no outage"
    for _ in range(4):
        route.fail()
    out = route.estimate()
    assert out.failure_rate > 0.4
    assert not out.retry
    route.now += RETRY_S + 1
    assert route.estimate().retry
    route.call(after_s=0)
    back = route.estimate()
    assert back.failure_rate < 0.05
    assert not back.retry
    assert back.calls == 56


def test_a_flaky_routes_failure_rate_is_estimated():
    rates = []
    for seed in range(5):
        failures, rng = FailureRate(), random.Random(seed)
        for n in range(600):
            failures.add(rng.random() < 0.1, at=5.0 * n, retried=False)
        rates.append(failures.rate(3000))
    assert sum(rates) / 5 == pytest.approx(0.1, abs=0.06)


def test_a_route_with_only_failures_keeps_its_prior():
    route = Route()
    route.fail()
    made = route.estimate(prior=RoutePrior(ttft_s=0.5, token_s=0.01))
    assert (made.ttft_s, made.assumed, made.calls) == (0.5, True, 1)
    assert route.estimate().latency_s(10) is None


def test_acceptance_is_learned_by_task_and_gives_a_draft_depth():
    route = Route(spread=0.05)
    for n in range(40):
        steps = 50
        drafted = steps * (2 + n % 5)
        route.call("code", drafted=drafted, accepted=round(drafted * 0.6), steps=steps, tokens=150)
        route.call("chat", drafted=drafted, accepted=round(drafted * 0.2), steps=steps, tokens=75)
    code, chat = route.estimate("code"), route.estimate("chat")
    assert code.acceptance_rate == pytest.approx(0.6, abs=0.05)
    assert chat.acceptance_rate == pytest.approx(0.2, abs=0.05)
    assert code.tokens_per_verification == pytest.approx(3, rel=0.05)
    assert code.depth is None, "the draft cost is unknown"
    prior = RoutePrior(0.1, 0.01, cost_ratio=0.1)
    deep, shallow = (route.estimate(task, prior=prior).depth for task in ("code", "chat"))
    assert deep > shallow
    assert route.estimate("code", prior=prior, load=ServerLoad(running=9, slots=10)).depth == 0


def test_the_draft_cost_is_inferred_from_calls_of_several_depths():
    route = Route()
    for n in range(40):
        depth, steps = 1 + n % 6, 40
        route.now += 1
        latency = 0.1 + steps * (0.02 + depth * 0.001)
        sample = CallSample(
            route="x/y", at=route.now, task="code", ttft_s=0.1, latency_s=latency, completion_tokens=100,
            drafted=depth * steps, accepted=round(0.7 * depth * steps), steps=steps,
        )  # fmt: skip
        route.learned.learn(sample, 100)
    assert route.estimate("code").depth >= 4, "a drafted token costs a twentieth of a pass"


def test_load_raises_ttft_and_supplies_acceptance_where_calls_report_none():
    route = Route()
    route.calls(50)
    free, queued = (
        route.estimate(load=ServerLoad(running=4, waiting=n, slots=8, acceptance_rate=0.7)) for n in (0, 8)
    )
    service = free.latency_s(150)
    assert queued.ttft_s - free.ttft_s == pytest.approx(service, rel=0.2)
    assert queued.ttft_limit_s > free.ttft_limit_s
    full = route.estimate(load=ServerLoad(running=8, slots=8))
    assert free.ttft_s < full.ttft_s < queued.ttft_s
    assert free.acceptance_rate == 0.7


def test_a_detected_shift_is_dated_to_its_first_call():
    drift = DriftDetector()
    for number in range(20):
        assert not drift.add(0.4 if number % 2 else 0.6, 1.0, number)
    assert drift.calm
    number = 20
    while not drift.add(0.97, 2.0, number):
        number += 1
    assert (drift.slower, drift.faster) == (20, None)
    assert number <= 25


def test_a_route_whose_first_calls_are_far_slower_than_published_is_tried_again():
    """Otherwise a slow period at the start would keep it away for good."""
    route = Route(spread=0.1)
    route.learned = RouteModel(RoutePrior(0.4, 0.02, calls=2))
    route.ttft_s, route.token_s = 2.0, 0.1
    route.calls(5)
    now = route.now
    assert route.learned.slow
    assert route.estimate().token_s == pytest.approx(0.1, rel=0.2)
    later = route.learned.estimate("chat", 0.95, now + RETRY_S + 1)
    assert later.retry
    assert later.optimistic_speedup > 4, "as fast as published"
    route.ttft_s, route.token_s = 0.4, 0.02
    route.call(after_s=RETRY_S + 1)
    assert not route.learned.slow
    assert route.estimate().token_s < 0.03


def test_a_route_that_is_somewhat_slower_than_published_is_not_slow():
    route = Route(spread=0.1)
    route.learned = RouteModel(RoutePrior(0.4, 0.02, calls=2))
    route.ttft_s, route.token_s = 0.6, 0.03
    route.calls(40)
    assert not route.learned.slow
