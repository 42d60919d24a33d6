"""Calls routed by the real router: fallbacks, named models, strategies and hedges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, CONTINUES, Kit, answering, breaking, continuing, kit, status
from loopback_server import hang

from specclient import ConfigurationError, InternalServerError, Policy, Strategy
from specclient.routing.choose.evaluation import DecisionSnapshot

pytestmark = pytest.mark.anyio

SETTINGS = {
    "candidates": ["s0/m", "s1/m", "local/demo"],
    "prices": {"s0/*": {"input": 1, "output": 1}, "s1/*": {"input": 2, "output": 2}},
}
REMOTE_ONLY = Policy(deny=("local/",), explore=0)


def use_real_router(made: Kit) -> None:
    """Restore the router's own ``decide``, which the kit replaces."""
    made.client.router.decide = made.original_decide  # type: ignore[method-assign]


async def test_other_candidates_are_fallbacks_in_order_of_preference(tmp_path: Path) -> None:
    async with kit(tmp_path, settings=SETTINGS) as made:
        use_real_router(made)
        made.servers[0].script(status(500))
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK, policy=REMOTE_ONLY)
        verdicts = {each.route: each.verdict for each in answer.meta.route.candidates}
        rows = await made.rows()
    assert answer.meta.route.chosen == "s1/m"
    assert answer.meta.route.reason.startswith("in place of s0/m (InternalServerError 500)")
    assert verdicts == {"s0/m": "left", "s1/m": "chosen", "local/demo": "refused"}
    left = answer.meta.route.candidates[0].reason
    assert left.startswith("chosen at first: cheapest")
    assert left.endswith("then s1/m in place of s0/m (InternalServerError 500)")
    assert [row.decision["chosen"] for row in rows] == ["s0/m", "s1/m"]


async def test_a_named_model_is_tried_before_the_listed_fallbacks(tmp_path: Path) -> None:
    policy = Policy(fallbacks=("s0/m",))
    async with kit(tmp_path, settings=SETTINGS) as made:
        use_real_router(made)
        made.servers[1].script(answering(), status(500), status(500))
        made.servers[0].script(answering())
        ask: dict[str, Any] = {"messages": ASK, "policy": policy}
        first = await made.client.chat.completions.create(model="s1/m", **ask)
        second = await made.client.chat.completions.create(model="s1/m", **ask)
        assert (first.meta.route.chosen, second.meta.route.chosen) == ("s1/m", "s0/m")
        with pytest.raises(ConfigurationError, match="fallbacks="):
            await made.client.chat.completions.create(model="s1/m", messages=ASK, policy=Policy())
        made.servers[0].script(status(503))
        with pytest.raises(InternalServerError):
            await made.client.chat.completions.create(model="s1/m", **ask)
        assert made.request_counts() == [2, 3]


async def test_a_listed_fallback_need_not_be_a_candidate(tmp_path: Path) -> None:
    settings = {**SETTINGS, "candidates": ["s0/m"]}
    async with kit(tmp_path, settings=settings) as made:
        use_real_router(made)
        made.servers[0].script(status(500))
        made.servers[1].script(answering())
        policy = Policy(fallbacks=("s1/other",))
        answer = await made.client.completions.create(model="auto", prompt="x", policy=policy)
    assert answer.meta.route.chosen == "s1/other"


async def test_the_strategy_of_a_policy_also_applies_to_fallbacks(tmp_path: Path) -> None:
    async with kit(tmp_path, settings=SETTINGS, capabilities=lambda _: CONTINUES) as made:
        use_real_router(made)
        begun = [*ASK, {"role": "assistant", "content": "The quick brown"}]
        policy = Policy(strategy=Strategy(kind="prefill"), deny=("local/",), explore=0)
        made.servers[0].script(status(500), breaking(" fox jumps"))
        made.servers[1].script(continuing(), continuing())
        answer = await made.client.chat.completions.create(model="auto", messages=begun, policy=policy)
        assert answer.choices[0].message.content == ANSWER
        assert [part.purpose for part in answer.meta.parts] == ["verify", "verify"]
        stream = await made.client.chat.completions.create(
            model="auto", messages=begun, policy=policy, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        rows = await made.rows()
    assert text == ANSWER
    assert len({row.parent for row in rows[:2]}) == len({row.parent for row in rows[2:]}) == 1
    assert stream.meta.cost.nano == sum(row.cost_nano or 0 for row in rows[2:])


async def test_the_hedge_delay_is_learned_from_earlier_latencies(tmp_path: Path) -> None:
    async with kit(tmp_path, settings=SETTINGS) as made:
        use_real_router(made)
        made.servers[0].script(*[answering()] * 30, hang)
        made.servers[1].script(answering())
        for _ in range(30):
            await made.client.chat.completions.create(model="auto", messages=ASK, policy=REMOTE_ONLY)
        policy = replace(REMOTE_ONLY, hedge=1.0)
        answer = await made.client.chat.completions.create(model="auto", messages=ASK, policy=policy)
        assert made.request_counts() == [31, 1]
    assert sorted(part.purpose for part in answer.meta.parts) == ["call", "hedge"]
    assert answer.meta.route.chosen == "s1/m"


async def test_a_policy_without_fallbacks_can_be_hedged(tmp_path: Path) -> None:
    alone = replace(REMOTE_ONLY, fallbacks=False)
    async with kit(tmp_path, settings=SETTINGS) as made:
        use_real_router(made)
        made.servers[0].script(*[answering()] * 30, hang, status(500))
        made.servers[1].script(answering())
        create = made.client.chat.completions.create
        for _ in range(30):
            await create(model="auto", messages=ASK, policy=alone)
        hedged = await create(model="auto", messages=ASK, policy=replace(alone, hedge=1.0))
        with pytest.raises(InternalServerError):
            await create(model="auto", messages=ASK, policy=alone)
    assert hedged.meta.route.chosen == "s1/m"
    assert made.request_counts() == [32, 1]


async def test_copies_of_a_client_share_the_hedge_quota(tmp_path: Path) -> None:
    async with kit(tmp_path, settings=SETTINGS) as made:
        client, router = made.client, made.client.router
        patient = client.with_options(timeout=5, max_retries=3)
        assert patient.pipeline.router is router
        routed = [
            client.with_options(**changed).pipeline for changed in ({"policy": REMOTE_ONLY}, {"timeout": 1})
        ]
        assert routed[0].router is not router
        assert client.with_options(default_headers={"a": "b"}).pipeline.router is not router
        executors = [each._failover for each in (client.pipeline, *routed)]
        assert len({id(each._hedge_quota) for each in executors}) == 1


async def test_fallbacks_are_computed_only_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []
    others = DecisionSnapshot.others
    monkeypatch.setattr(
        DecisionSnapshot, "others", lambda self, chosen: computed.append(chosen) or others(self, chosen)
    )
    async with kit(tmp_path, settings=SETTINGS) as made:
        use_real_router(made)
        made.servers[0].script(answering(), answering(), status(500))
        made.servers[1].script(answering())
        for stream, expected in ((False, 0), (True, 0), (True, 1)):
            answer = await made.client.chat.completions.create(
                model="auto", messages=ASK, policy=REMOTE_ONLY, stream=stream
            )
            if stream:
                [chunk async for chunk in answer]
            assert len(computed) == expected
    assert made.request_counts() == [3, 1]
