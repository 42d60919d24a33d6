"""Measure the cost of `Router.decide` among 1, 20 and 1,000 candidates, and that of LiteLLM's router.

    python benchmarks/routing.py

Figures are CPU time of the calling thread, medians over rounds in which all measurements alternate. Every
candidate has learned estimates. `decide` includes classifying and measuring the prompt, predicting the length
of the answer, scoring all candidates, and the decision with its reason. LiteLLM is measured if it is
installed. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from specclient import Policy
from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.routing.learn.call_sample import CallSample
from specclient.types import inference_methods
from specclient.types.criterion import CRITERIA, Bound, Criterion
from specclient.types.request import Request

COUNTS = (1, 20, 1000)
ROUNDS = 15
#: Approximate seconds of CPU time per measurement and round.
ROUND_S = 0.02
PROMPT = (
    "Why is the sky blue, and why is it red in the evening? Answer in two sentences, for a child of eight."
)
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": PROMPT},
]
POLICIES = {
    "cost": Policy(),
    "limits": Policy(max_latency_s=30, max_ttft_s=5, max_cost_usd=1, min_quality=0.1),
    "weighed": Policy(minimize={"cost": 1, "latency": 0.002}),
}
#: A criterion that a program adds, and one whose value is not linear in tokens.
CO2 = Criterion("co2_g", "g CO2", lambda call: 0.001 * call.completion_tokens, bounds=(Bound("max_co2_g"),))
CURVED = Criterion("curved", "", lambda call: math.sqrt(call.completion_tokens))
ADDED = {
    "an added criterion": (CO2, {"minimize": {"cost": 1, "co2_g": 0.001}, "limits": {"max_co2_g": 9}}),
    "a nonlinear criterion": (CURVED, {"minimize": {"cost": 1, "curved": 0.001}}),
}


def core_of(count: int) -> ClientCore:
    """Return the core of a client with ``count`` candidates, each with a dozen finished calls."""
    routes = [f"place{i % 10}/model-{i}" for i in range(count)]
    settings = Settings.model_validate(
        {
            "ledger": "off",
            "candidates": routes,
            "quality": {"place": 0.5},
            "providers": {f"place{i}": {"base_url": f"http://127.0.0.1:9{i:03}/v1"} for i in range(10)},
            "prices": {
                route: {"input": 1 + i % 17 / 10, "output": 4 + i % 13 / 10} for i, route in enumerate(routes)
            },
        }
    )
    core = ClientCore({"config": settings, "api_key": "none"})
    rng, now = random.Random(1), time.time()
    for route in routes:
        speed = rng.uniform(0.5, 2)
        for k in range(12):
            core.shared.estimates.learn(sample(route, speed * rng.lognormvariate(0, 0.2), now - 12 + k))
    return core


def sample(route: str, speed: float, at: float) -> CallSample:
    """Return the sample of a finished call, from which estimates are learned."""
    return CallSample(
        route=route,
        at=at,
        task="chat",
        ttft_s=0.3 * speed,
        latency_s=2.3 * speed,
        prompt_tokens=40,
        completion_tokens=150,
    )


def subjects(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield name and function of each measurement with ``count`` candidates."""
    core = core_of(count)
    router, estimates = core.pipeline.router, core.shared.estimates
    for name, policy in POLICIES.items():
        request = Request(inference_methods.CHAT, "auto", {"messages": MESSAGES}, policy=policy)
        yield f"decide, {name}", lambda request=request: router.decide(request)
    for name, (criterion, values) in ADDED.items():

        def with_criterion(criterion: Criterion = criterion, values: dict[str, Any] = values) -> Any:
            if criterion.name not in CRITERIA:
                CRITERIA.add(criterion)
            policy = Policy(**values)
            request = Request(inference_methods.CHAT, "auto", {"messages": MESSAGES}, policy=policy)
            return lambda: router.decide(request)

        if count <= 20:
            yield f"decide, {name}", with_criterion()
    plain = Request(inference_methods.CHAT, "auto", {"messages": MESSAGES})
    route = router.decide(plain).chosen
    rng = random.Random(2)

    def learn_and_decide() -> None:
        estimates.learn(sample(route, rng.lognormvariate(0, 0.1), time.time()))
        router.decide(plain)

    def learn() -> None:
        estimates.learn(sample(route, rng.lognormvariate(0, 0.1), time.time()))

    yield "learn from a call", learn
    yield "learn from a call, decide", learn_and_decide
    yield "decide, and read every reason", lambda: list(router.decide(plain).candidates)
    named = Request(inference_methods.CHAT, route, {"messages": MESSAGES})
    yield "a named model", lambda: router.decide(named)


def peer(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield measurements of LiteLLM's choice among ``count`` deployments of a model, if it is installed."""
    try:
        from litellm import Router  # noqa: PLC0415 - optional
    except ImportError:
        return
    deployments = [
        {
            "model_name": "auto",
            "litellm_params": {
                "model": f"openai/model-{i}",
                "api_key": "none",
                "api_base": "http://127.0.0.1:9/v1",
            },
        }
        for i in range(count)
    ]
    for strategy in ("simple-shuffle", "latency-based-routing"):
        try:
            router = Router(model_list=deployments, routing_strategy=strategy)
            router.get_available_deployment("auto", messages=MESSAGES)
        except Exception as error:  # noqa: BLE001 - an error of LiteLLM is printed, and the other measurements run
            print(f"litellm, {strategy}: {type(error).__name__}: {str(error)[:120]}")
            continue
        yield (
            f"litellm, {strategy}",
            lambda router=router: router.get_available_deployment("auto", messages=MESSAGES),
        )


def cpu_us(call: Callable[[], Any], times: int) -> float:
    """Return the mean µs of CPU time per call, over ``times`` calls."""
    begun = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - begun) / times / 1000


def measure(calls: list[tuple[str, Callable[[], Any]]]) -> dict[str, float]:
    """Return the median µs of CPU time per call, over rounds in which all measurements alternate."""
    times = {}
    for name, call in calls:
        cpu_us(call, 3)
        times[name] = max(int(ROUND_S * 1e6 / cpu_us(call, 3)), 1)
    figures: dict[str, list[float]] = {name: [] for name, _ in calls}
    for _ in range(ROUNDS):
        for name, call in calls:
            figures[name].append(cpu_us(call, times[name]))
    return {name: round(statistics.median(values), 1) for name, values in figures.items()}


def main() -> None:
    """Measure, print a table, then one JSON line."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    results = {str(count): measure([*subjects(count), *peer(count)]) for count in COUNTS}
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    width = max(map(len, names))
    print(f"{'µs of CPU, candidates:':<{width}}" + "".join(f"{count:>10,}" for count in COUNTS))
    for name in names:
        cells = "".join(f"{results[str(count)].get(name, float('nan')):>10,.1f}" for count in COUNTS)
        print(f"{name:<{width}}{cells}")
    try:
        litellm = importlib.metadata.version("litellm")
    except importlib.metadata.PackageNotFoundError:
        litellm = None
        print("LiteLLM is not installed, so it was not measured: pip install litellm")
    print(json.dumps({"python": platform.python_version(), "litellm": litellm, "cpu_us": results}))


if __name__ == "__main__":
    main()
