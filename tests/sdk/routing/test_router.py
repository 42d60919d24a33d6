"""The router: a request's route follows its model name, its policy or the client's, and the configuration."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from specclient.call.encode import encode_request, engine_request
from specclient.call.recorder import CallRecorder
from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.errors import ConfigurationError, NoRouteError, NotFoundError
from specclient.routing.choose.decisions import named_decision
from specclient.routing.learn.call_sample import CallSample
from specclient.types import inference_methods
from specclient.types.call import Call
from specclient.types.policy import Policy
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Alternative, Decision
from specclient.types.usage import Usage

CONFIGURED = {
    "ledger": "off",
    "candidates": ["mine/small", "mine/large"],
    "providers": {"mine": {"base_url": "https://models.example/v1"}},
    "prices": {"mine/small": {"input": 1, "output": 4}, "mine/large": {"input": 2, "output": 8}},
}


def core(**changes):
    options = {"api_key": "none", **changes.pop("options", {})}
    return ClientCore({"config": Settings.model_validate(CONFIGURED | changes), **options})


def router(**changes):
    return core(**changes).pipeline.router


def request_for(text="hello", model="auto", method=inference_methods.CHAT, **values):
    params = (
        {"messages": [{"role": "user", "content": text}]}
        if method is inference_methods.CHAT
        else {"prompt": text}
    )
    return Request(method, model, {**params, **values.pop("params", {})}, **values)


def test_a_calls_policy_overrides_the_clients_and_the_default():
    policies = {"dear": {"allow": ["mine/large"]}, "weighed": {"minimize": {"cost": 1, "latency": 0.002}}}
    found = router(policies=policies)
    assert found.decide(request_for()).chosen == "mine/small"
    assert found.decide(request_for(policy="dear")).chosen == "mine/large"
    assert found.decide(request_for(policy=Policy(deny=("mine/small",)))).chosen == "mine/large"
    assert found.decide(request_for(policy="weighed")).policy.weights == {"cost": 1.0, "latency": 0.002}
    with pytest.raises(ConfigurationError, match="no policy named 'none'"):
        found.decide(request_for(policy="none"))
    assert router(policies=policies, options={"policy": "dear"}).decide(request_for()).chosen == "mine/large"


def test_every_field_of_a_policy_can_be_configured():
    table = {
        "minimize": {"cost": 1, "latency": 0.002}, "max_cost_usd": 0.1, "max_latency_s": 3, "max_ttft_s": 1,
        "percentile": 0.9, "min_quality": 0.5, "allow": ["mine/"], "deny": ["mine/x"], "local_only": True,
        "task": "code", "deadline_s": 9, "fallbacks": ["mine/large"], "hedge": 0.1, "explore": 0.05,
        "strategy": "prediction", "draft": "mine/small", "depth": 4, "limits": {},
    }  # fmt: skip
    policy = Settings.model_validate({"policies": {"all": table}}).policy_named("all")
    for name, value in table.items():
        if name not in ("strategy", "draft", "depth"):
            found = getattr(policy, name)
            assert (list(found) if isinstance(found, tuple) else found) == value, name
    assert (policy.strategy.kind, policy.strategy.draft, policy.strategy.depth) == (
        "prediction",
        "mine/small",
        4,
    )
    assert {*table} == {*Settings.model_validate({"policies": {"p": {}}}).policies["p"].model_dump()}


def test_a_named_model_comes_before_the_policys_listed_fallbacks():
    found = router()
    decision = found.decide(
        request_for(model="mine/large", policy=Policy(fallbacks=("mine/small", "local/demo")))
    )
    assert (decision.chosen, decision.taken.route) == ("mine/large", "mine/large")
    assert [other.route for other in decision.alternatives] == ["mine/small", "local/demo"]
    assert "named by the caller" in decision.reason
    with pytest.raises(ConfigurationError, match="list the model's fallbacks"):
        found.decide(request_for(model="mine/large", policy=Policy()))
    with pytest.raises(NoRouteError, match="leaves this machine"):
        found.decide(
            request_for(model="mine/large", policy=Policy(fallbacks=("mine/small",), local_only=True))
        )
    listed = found.decide(request_for(policy=Policy(fallbacks=("local/demo", "mine/large"))))
    assert listed.chosen == "mine/small"
    assert [other.route for other in listed.alternatives] == ["local/demo", "mine/large"]


def test_a_named_model_gives_a_decision_with_one_candidate():
    decision = router().decide(request_for(model="mine/anything"))
    assert (decision.provider, decision.model, decision.taken, list(decision.alternatives)) == (
        "mine", "anything", None, [],
    )  # fmt: skip
    with pytest.raises(NotFoundError, match="unknown provider"):
        router().decide(request_for(model="nobody/x"))


def test_local_only_permits_loopback_addresses_and_engines():
    places = {
        "here": {"base_url": "http://127.0.0.1:8000/v1"},
        "named": {"base_url": "http://localhost:8000/v1"},
        "six": {"base_url": "http://[::1]:8000/v1"},
        "lan": {"base_url": "http://192.168.0.2:8000/v1"},
        "far": {"base_url": "https://127.0.0.1.example/v1"},
    }
    routes = [f"{place}/m" for place in places] + ["local/demo"]
    decision = router(providers=places, candidates=routes).decide(request_for(policy=Policy(local_only=True)))
    verdicts = {c.route: c.verdict for c in decision.candidates}
    assert verdicts == {
        "here/m": "left", "named/m": "left", "six/m": "left", "lan/m": "refused", "far/m": "refused",
        "local/demo": "chosen",
    }  # fmt: skip


def test_an_invalid_or_unusable_candidate_states_the_reason():
    with pytest.raises(ConfigurationError, match="candidate 'bare' is not a route"):
        router(candidates=["bare"]).decide(request_for())
    decision = router(
        candidates=["local/none", "nobody/x", "openai/gpt-4.1", "mine/small"], options={"api_key": None}
    )
    reasons = {
        c.route: c.reason for c in decision.decide(request_for()).candidates if c.verdict == "unavailable"
    }
    assert "no model 'none' in local" in reasons["local/none"]
    assert "unknown provider" in reasons["nobody/x"]


@pytest.mark.parametrize("policy", [None, Policy(fallbacks=False), Policy(fallbacks=("local/demo",))])
def test_a_local_engine_gets_no_methods_it_does_not_serve(policy):
    found = router(candidates=["local/demo", "mine/small"])
    for method in (inference_methods.CHAT, inference_methods.RESPONSE):
        assert found.decide(request_for(method=method)).chosen == "local/demo"  # it is free
    decision = found.decide(request_for(method=inference_methods.EMBEDDING, policy=policy))
    assert (decision.chosen, list(decision.alternatives)) == ("mine/small", [])
    reason = "local/demo is a model of kind 'chat'"
    assert reason in decision.candidates[0].reason
    with pytest.raises(NoRouteError, match=reason):
        router(candidates=["local/demo"]).decide(request_for(method=inference_methods.EMBEDDING))


@pytest.mark.parametrize(
    ("method", "served"),
    [
        (inference_methods.CHAT, {"anthropic", "gemini", "mine"}),
        (inference_methods.EMBEDDING, {"gemini", "mine"}),
        (inference_methods.COMPLETION, {"mine"}),
        (inference_methods.RESPONSE, {"anthropic", "gemini", "mine"}),  # over chat completions
    ],
    ids=["chat", "embeddings", "completions", "responses"],
)
def test_a_vendor_gets_no_methods_its_api_does_not_serve(method, served, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    routes = ["anthropic/claude-sonnet-4-0", "gemini/gemini-2.5-flash", "mine/small"]
    decision = router(candidates=routes).decide(request_for(method=method))
    left = {c.route.partition("/")[0]: c.reason for c in decision.candidates if c.verdict == "unavailable"}
    assert {route.partition("/")[0] for route in routes} - set(left) == served
    assert all("alone" in reason for reason in left.values())


def test_an_engine_without_room_for_the_answer_is_not_chosen():
    found = router(candidates=["local/demo", "mine/small"])
    assert found.decide(request_for(params={"max_tokens": 900})).chosen == "local/demo"
    decision = found.decide(request_for(params={"max_tokens": 4000}))
    assert decision.chosen == "mine/small"
    assert "plus room for 4000 more" in decision.candidates[0].reason
    for body in ({"overflow": "slide"}, {"specclient": {"overflow": "slide"}}):
        sliding = request_for(params={"max_tokens": 4000}, options=PerCallOptions(body=body))
        assert found.decide(sliding).chosen == "local/demo"


def test_a_cost_limit_on_an_unpriced_route_names_the_remedy():
    with pytest.raises(NoRouteError, match=r"max_cost_usd 1 cannot be kept; set its price under \[prices\]"):
        router(prices={}).decide(request_for(policy=Policy(max_cost_usd=1)))


def test_the_cache_of_per_call_route_lists_is_bounded(monkeypatch):
    monkeypatch.setattr("specclient.routing.choose.option_catalogue._MOST", 8)
    found = router()
    for number in range(40):
        found.decide(request_for(model=f"mine/{number}", policy=Policy(fallbacks=("mine/small",))))
    assert len(found._catalogue._made) <= 8


def test_the_decisions_task_comes_from_the_policy_or_the_prompt():
    found = router()
    assert found.decide(request_for("Write a Python function that adds.")).task == "code"
    assert found.decide(request_for("hello", policy=Policy(task="document"))).task == "document"


def test_learning_changes_the_next_decision():
    made = core()
    found = made.pipeline.router
    fast = request_for(policy=Policy(minimize="latency"))
    for route, latency_s in (("mine/small", 4.0), ("mine/large", 1.0)):
        for k in range(10):
            at = datetime.now(UTC).timestamp() - 10 + k
            made.shared.estimates.learn(
                CallSample(
                    route=route, at=at, task="chat", ttft_s=0.1, latency_s=latency_s, completion_tokens=100
                )
            )
    assert found.decide(fast).chosen == "mine/large"
    for k in range(25):
        at = datetime.now(UTC).timestamp() + k / 10
        made.shared.estimates.learn(
            CallSample(
                route="mine/large", at=at, task="chat", ttft_s=0.1, latency_s=60.0, completion_tokens=100
            )
        )
    assert found.decide(fast).chosen == "mine/small"


def test_prompt_sizes_follow_the_routes_measured_token_counts():
    made = core()
    found = made.pipeline.router
    text = "word " * 400
    before = found.decide(request_for(text))
    for _ in range(30):
        call = Call(
            id="x", started_at=datetime.now(UTC), operation="chat", model="auto", route=before, status="ok",
            usage=Usage(prompt=2 * before.prompt_tokens, completion=10),
        )  # fmt: skip
        made.shared.sizes.observe(call)
    after = found.decide(request_for(text, policy=Policy(explore=0)))
    costs = [{c.route: c.cost for c in each.candidates} for each in (before, after)]
    assert costs[1]["mine/small"] > costs[0]["mine/small"] * Decimal("1.2")
    assert costs[1]["mine/large"] == costs[0]["mine/large"]


def test_tiered_prices_follow_the_prompt_length():
    made = core(
        candidates=["gemini/gemini-2.5-pro"], options={"api_key": "x"}, providers={"gemini": {"api_key": "k"}}
    )
    found, prices = made.pipeline.router, made.shared.prices
    vendor = found.destinations.get("gemini").price_provider
    assert prices.prompt_tiers("gemini", "gemini-2.5-pro", vendor) == (200_000,)
    for text in ("hello", "word " * 300_000, "hello"):
        decision = found.decide(request_for(text, params={"max_tokens": 10}, policy=Policy(explore=0)))
        expected = prices.predict(
            decision.prompt_tokens, 10, "gemini", "gemini-2.5-pro", price_provider=vendor
        )
        assert decision.candidates[0].cost == expected
        assert expected is not None


PAIRED = {
    "candidates": ["mine/large"],
    "pairs": {"x": {"draft": "mine/small", "target": "mine/large"}},
}


class TestStrategies:
    def routes(self, request, **capabilities):
        providers = {"mine": {"base_url": "https://models.example/v1", "capabilities": capabilities}}
        decision = router(**PAIRED, providers=providers).decide(request)
        return {c.strategy: (c.verdict, c.draft) for c in decision.candidates}

    def test_a_pair_adds_a_prediction_where_the_endpoint_supports_one(self):
        assert self.routes(request_for()) == {None: ("chosen", None)}
        verdicts = self.routes(request_for(), prediction=True)
        assert verdicts == {
            None: ("chosen", None),
            "prediction": ("left", "mine/small"),
        }  # more expensive: both models are paid

    def test_remote_verification_is_for_greedy_completions_only(self):
        greedy = request_for(method=inference_methods.COMPLETION, params={"temperature": 0})
        assert self.routes(greedy, verification="echo")["remote"] == ("left", "mine/small")
        assert self.routes(request_for(), verification="echo")["remote"] == ("unavailable", "mine/small")

    def test_a_prediction_is_chosen_where_it_is_faster(self):
        providers = {"mine": {"base_url": "https://models.example/v1", "capabilities": {"prediction": True}}}
        made = core(**PAIRED, providers=providers)
        now = datetime.now(UTC).timestamp()
        for route, latency_s in (("mine/small", 0.3), ("mine/large", 20.0)):
            for k in range(10):
                made.shared.estimates.learn(
                    CallSample(
                        route=route, at=now - 10 + k, ttft_s=0.1, latency_s=latency_s, completion_tokens=300
                    )
                )
        decision = made.pipeline.router.decide(request_for(policy=Policy(minimize="latency")))
        assert decision.chosen == "mine/large"
        assert (decision.taken.strategy.kind, decision.taken.strategy.draft) == ("prediction", "mine/small")
        assert list(decision.alternatives) == []  # the same route without the prediction would fail, too

    def test_a_policys_strategy_excludes_all_others(self):
        providers = {"mine": {"base_url": "https://models.example/v1", "capabilities": {"prediction": True}}}
        made = router(**PAIRED, providers=providers)
        decision = made.decide(request_for(policy=Policy(strategy="direct")))
        assert [c.strategy for c in decision.candidates] == ["direct"]


class TestDepth:
    def sent(self, depth, *, field="options.draft", body=None, **values):
        providers = {
            "mine": {"base_url": "https://models.example/v1", "capabilities": {"draft_length": field}}
        }
        made = core(providers=providers)
        place = made.pipeline.destinations.get("mine")
        decision = decided("mine/m", depth)
        request = request_for(options=PerCallOptions(body=body or {}), **values)
        record = CallRecorder(request, decision, made.shared.prices, clock=lambda: 0.0, hosted=True)
        wire = encode_request(request, decision, place, record)
        import json

        return json.loads(wire.content)

    def test_the_depth_is_sent_in_the_configured_field(self):
        assert self.sent(4)["options"] == {"draft": 4}
        assert self.sent(4, field="num_draft")["num_draft"] == 4
        assert self.sent(4, body={"options": {"seed": 1}})["options"] == {"seed": 1, "draft": 4}

    def test_the_callers_own_depth_is_kept(self):
        assert self.sent(4, body={"options": {"draft": 9}})["options"] == {"draft": 9}
        assert self.sent(4, field="num_draft", body={"num_draft": 2})["num_draft"] == 2
        assert "options" not in self.sent(None)
        assert "options" not in self.sent(0)

    @pytest.mark.parametrize(
        ("depth", "params", "expected"),
        [
            (0, {}, 0),
            (4, {}, None),
            (None, {}, None),
            (0, {"seed": 1}, None),
            (0, {"specclient": {"draft_length": 3}}, 3),
        ],
    )
    def test_only_depth_zero_is_sent_to_the_engine(self, depth, params, expected):
        request = engine_request(request_for(params=params), decided("local/demo", depth))
        assert request.params.get("specclient", {}).get("draft_length") == expected

    @pytest.mark.parametrize(("depth", "drafts"), [(0, False), (4, True)])
    @pytest.mark.anyio
    async def test_the_engine_drafts_nothing_at_depth_zero(self, depth, drafts):
        pytest.importorskip("torch")
        made = core()
        backend = made.pipeline.destinations.get("local")
        asked = request_for(
            "def f(x):", method=inference_methods.COMPLETION, params={"max_tokens": 24, "temperature": 0}
        )
        _, measured = await backend.complete(engine_request(asked, decided("local/demo", depth)), "demo")
        assert bool(measured.speculation.drafted) is drafts
        await made.shared.close()

    def test_requests_for_named_models_are_unchanged(self):
        request = request_for(model="local/demo")
        assert engine_request(request, named_decision("local/demo", "local", "demo")).params == request.params


def decided(route, depth):
    provider, _, model = route.partition("/")
    return Decision(route, provider, model, taken=Alternative(route, provider, model, depth=depth))


def test_equal_seeds_explore_the_same_routes():
    def chosen(seed):
        made = core(candidates=[f"mine/{i}" for i in range(6)], prices={"mine/*": {"per_call": 1}})
        found = made.pipeline.router
        found._explorer._dice = random.Random(seed)
        request = request_for(policy=Policy(minimize="latency", explore=0.5))
        return [found.decide(request).chosen for _ in range(40)]

    assert chosen(3) == chosen(3)


def test_the_predicted_cost_is_that_of_the_requested_tier():
    flex, priority = {"input": "0.25", "output": 1}, {"input": 5, "output": 20}
    prices = {
        "mine/small": {"input": 1, "output": 4, "tiers": {"priority": priority}},
        "mine/large": {"input": 2, "output": 8, "tiers": {"flex": flex}},
    }
    found = router(prices=prices)

    def costs(tier):
        params = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 64, "service_tier": tier}
        decision = found.decide(request_for(params=params), explore=False)
        return decision.chosen, {each.route: each.cost for each in decision.candidates}

    chosen, standard = costs(None)
    assert chosen == "mine/small"
    assert costs("auto") == costs("default") == (chosen, standard)
    assert costs("flex")[0] == "mine/large"
    assert costs("flex")[1]["mine/large"] == standard["mine/small"] / 4
    assert costs("priority") == ("mine/large", {**standard, "mine/small": standard["mine/small"] * 5})
