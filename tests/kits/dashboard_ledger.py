"""Random ledgers with calls of the last month, for the dashboard's tests."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from specclient.ledger.ledger import Ledger
from specclient.types.call import Call
from specclient.types.policy import Policy
from specclient.types.route import Candidate, Decision
from specclient.types.usage import Cost, Speculation, Usage

ROUTES = ("mine/m-large", "mine/m-small", "local/demo")
#: A model name with HTML, which the dashboard must show as text.
EVIL = 'mine/<img src=x onerror="document.title=1">'


def decision(route: str, *, routed: bool) -> Decision:
    provider, _, model = route.partition("/")
    if not routed:
        return Decision(route, provider, model)
    candidates = tuple(
        Candidate(name, verdict="chosen" if name == route else "left", reason=f"why {name}")
        for name in ROUTES
    )
    return Decision(route, provider, model, candidates, "the cheapest of three", Policy())


def filled(path: Path, calls: int = 120, seed: int = 1) -> Ledger:
    """Create a ledger with random calls, started between a few minutes and a few weeks ago."""
    rnd, now, ledger = random.Random(seed), datetime.now(UTC), Ledger(str(path))
    for number in range(calls):
        route = (*ROUTES, EVIL)[number % 4]
        local, routed = route == "local/demo", number % 3 == 0
        drafted = Speculation(method="draft", drafted=40, accepted=rnd.randint(10, 39), steps=10)
        ledger.submit(
            Call(
                id=f"c{number}",
                operation="chat",
                model="auto" if routed else route,
                route=decision(route, routed=routed),
                started_at=now - timedelta(hours=min(0.2 + number**2 / 20, 28 * 24)),
                status="error" if number % 17 == 5 else "ok",
                error="APITimeoutError" if number % 17 == 5 else None,
                streamed=True,
                usage=Usage(prompt=rnd.randint(10, 900), completion=rnd.randint(2, 300)),
                cost=Cost(
                    Decimal(0) if local else Decimal(rnd.randint(1, 10**7)).scaleb(-9), estimated=local
                ),
                speculation=drafted if local else None,
                pair="target+draft" if local else None,
                ttft_s=0.05 + rnd.random() / 5,
                latency_s=0.3 + rnd.random(),
            )
        )
    ledger.flush()
    return ledger
