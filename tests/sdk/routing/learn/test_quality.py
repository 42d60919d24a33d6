"""Quality: scores move a route's quality from its tier, by task, with an interval, and bound routes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from failover_servers import ASK, answering, kit

from specclient.errors import ConfigurationError, NoRouteError
from specclient.routing.choose.route_options import RouteOption
from specclient.routing.learn.quality import QualityModel
from specclient.types.policy import Policy


def test_quality_starts_at_the_tier_and_moves_to_the_scores() -> None:
    model = QualityModel()
    first = model.of("a/m", "chat", 0.8)
    assert first is not None
    assert (first.mean, first.scores) == (0.8, 0)
    assert model.of("a/m", "chat", None) is None
    for _ in range(100):
        model.add("a/m", "chat", 0.4)
    chat, code = (model.of("a/m", task, 0.8) for task in ("chat", "code"))
    assert chat is not None
    assert code is not None
    assert chat.mean == pytest.approx(0.41, abs=0.03)
    assert chat.mean < code.mean < 0.5, "other tasks of the route count in part"
    assert chat.high - chat.low < 0.5 * (code.high - code.low)


def test_the_interval_holds_the_true_quality_as_often_as_it_says() -> None:
    rng, held = Random(5), 0
    for _ in range(400):
        model, truth = QualityModel(), rng.betavariate(6, 4)
        for _ in range(40):
            model.add("a/m", "chat", float(rng.random() < truth))
        found = model.of("a/m", "chat", 0.6)
        assert found is not None
        held += found.low <= truth <= found.high
    assert 0.74 <= held / 400 <= 0.92


def test_options_stay_the_same_object_until_a_score_arrives() -> None:
    model = QualityModel()
    options = (RouteOption("a/m", "a", "m", quality=0.8), RouteOption("b/m", "b", "m"))
    assert model.applied(options, "chat") is options
    model.add("a/m", "chat", 0.0)
    applied = model.applied(options, "chat")
    assert applied is model.applied(options, "chat")
    assert applied[0].quality == pytest.approx(0.8 * 8 / 9 * 8 / 9, abs=0.01)
    assert applied[1].quality is None
    model.add("a/m", "code", 0.0)
    assert (model.applied(options, "chat")[0].quality or 0) < (applied[0].quality or 0)


@pytest.mark.parametrize("score", [1.1, -0.1, float("nan"), "good", None])
def test_other_scores_are_refused(score: float) -> None:
    with pytest.raises(ConfigurationError, match="it must be a number from 0 to 1, or a boolean"):
        QualityModel().feedback("c", score)


@pytest.mark.anyio
async def test_feedback_moves_calls_to_a_route_that_answers_better(tmp_path: Path) -> None:
    """The cheap route has the same tier, and a thumb down for every answer to a chat."""
    prices = {f"s{i}/m": {"input": 1 + i, "output": 1 + i} for i in range(2)}
    tables = {"candidates": ["s0/m", "s1/m"], "prices": prices, "quality": {"s0": 0.8, "s1": 0.8}}
    async with kit(tmp_path, settings=tables) as made:
        del made.client.router.decide  # the kit's own order of routes
        made.servers[0].script(*[answering("x")] * 8)
        made.servers[1].script(*[answering("x")] * 8)
        policy, chosen = Policy(min_quality=0.6, explore=0), []
        for _ in range(8):
            answer = await made.client.chat.completions.create(model="auto", messages=ASK, policy=policy)
            chosen.append(answer.meta.route.chosen)
            made.client.feedback(answer.meta.id, answer.meta.route.chosen == "s1/m")
        assert chosen[0] == "s0/m"
        assert chosen[-1] == "s1/m"
        assert chosen == sorted(chosen)
        with pytest.raises(NoRouteError, match="quality 0"):
            await made.client.chat.completions.create(
                model="auto", messages=ASK, policy=Policy(min_quality=0.99, explore=0)
            )
        with pytest.raises(ConfigurationError, match="no answered call 'nothing' among this client's last"):
            made.client.feedback("nothing", True)
