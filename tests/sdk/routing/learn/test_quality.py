"""Quality: scores move a route's quality from its tier, by task, with an interval, and bound routes."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from failover_servers import ASK, answering, kit, status

from specclient.errors import ConfigurationError, LedgerError, NoRouteError
from specclient.ledger.ledger import Ledger
from specclient.routing.choose.route_options import RouteOption
from specclient.routing.learn.quality import QualityModel
from specclient.types.call_score import CallScore
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


class Clock:
    """The time, which a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


def test_scores_of_other_processes_count_once_and_own_ones_not_again(tmp_path: Path, make_call) -> None:
    path, clock = str(tmp_path / "l.db"), Clock()
    ledger, other = Ledger(path), Ledger(path)
    model, far = QualityModel(ledger, now=clock), QualityModel(other, now=clock)
    call = make_call("mine")
    model.note(call)
    ledger.submit(call)
    assert ledger.flush(30)
    model.feedback("mine", True)
    far.feedback("mine", 0.5)
    assert ledger.flush(30)
    assert other.flush(30)

    def weight(of: QualityModel) -> float:
        found = of.of(call.route.chosen, None, None)
        return 0.0 if found is None else found.scores

    assert weight(model) == 1
    for _ in range(5):
        model.load_scores()
        clock.at += timedelta(minutes=15)
    assert weight(model) == pytest.approx(2, abs=0.01)
    far.load_scores()
    assert weight(far) == pytest.approx(2, abs=0.01)
    new = QualityModel(Ledger(path), now=clock)
    new.load_scores()
    assert weight(new) == pytest.approx(2, abs=0.01), "after a restart"
    clock.at += timedelta(days=91)
    late = QualityModel(Ledger(path), now=clock)
    late.load_scores()
    assert weight(late) == 0


def test_new_scores_are_read_a_minute_after_the_last_reading(tmp_path: Path) -> None:
    ledger, clock = Ledger(str(tmp_path / "l.db")), Clock()
    model = QualityModel(ledger, now=clock)

    def refreshed() -> float:
        model.refresh()
        for thread in threading.enumerate():
            if thread.name == "specclient-scores":
                thread.join(30)
        found = model.of("a/m", "chat", None)
        return 0.0 if found is None else found.scores

    ledger.submit_score(CallScore("c", "a/m", "chat", 1.0, weight=0.5, scored_at=clock.at))
    assert ledger.flush(30)
    assert refreshed() == 0, "nothing was read before the first routed call"
    clock.at += timedelta(seconds=1)
    model.load_scores()
    assert refreshed() == 0.5
    ledger.submit_score(CallScore("d", "a/m", "chat", 1.0, scored_at=clock.at))
    assert ledger.flush(30)
    clock.at += timedelta(seconds=30)
    assert refreshed() == 0.5
    clock.at += timedelta(seconds=31)
    assert refreshed() == pytest.approx(1.5, abs=0.01)
    ledger.close()


def test_a_call_goes_on_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, clock, tries = Ledger(str(tmp_path / "l.db")), Clock(), []
    model = QualityModel(ledger, now=clock)
    model.load_scores()

    def start(thread: threading.Thread) -> None:
        tries.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    clock.at += timedelta(seconds=61)
    for _ in range(3):
        model.refresh()
    assert tries == ["specclient-scores"], "tried again a minute later"


def test_an_unreadable_ledger_is_logged_and_read_later(tmp_path: Path, caplog) -> None:
    folder, clock = tmp_path / "missing", Clock()
    folder.touch()
    ledger = Ledger(str(folder / "l.db"))
    model = QualityModel(ledger, now=clock)
    model.load_scores()
    assert "no scores are read: cannot open the ledger" in caplog.text
    with pytest.raises(LedgerError, match="cannot open the ledger"):
        model.feedback("c", 1)
    folder.unlink()
    ledger.submit_score(CallScore("c", "a/m", "chat", 1.0, scored_at=clock.at - timedelta(days=80)))
    assert ledger.flush(30)
    model.load_scores()
    assert model.of("a/m", "chat", None) is not None
    ledger.close()


def test_a_part_that_answered_is_scored_by_the_id_of_its_call(make_call) -> None:
    model = QualityModel()
    model.note(make_call("part", parent="whole", purpose="draft"))
    with pytest.raises(ConfigurationError, match="no answered call 'whole'"):
        model.feedback("whole", 1)
    model.note(make_call("other", parent="whole", purpose="verify", route="b/m"))
    model.feedback("whole", 1)
    assert model.of("b/m", None, None) is not None


@pytest.mark.anyio
async def test_the_route_that_answered_after_a_failover_is_scored(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(answering("x"))
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        made.client.feedback(answer.meta.id, True)
        qualities = made.client.core.shared.qualities
        assert qualities.of("s0/m", None, None) is None
        assert qualities.of("s1/m", None, None) is not None
        await made.rows()
        qualities._calls.clear()  # as in another process
        made.client.feedback(answer.meta.id, True)
        scored = made.client.ledger
        assert scored.flush(30)
        assert [each.route for each in scored.scores(datetime(2026, 1, 1, tzinfo=UTC), 9)] == ["s1/m"] * 2


@pytest.mark.anyio
async def test_a_restarted_client_routes_by_the_scores_of_the_one_before(tmp_path: Path) -> None:
    prices = {f"s{i}/m": {"input": 1 + i, "output": 1 + i} for i in range(2)}
    tables = {"candidates": ["s0/m", "s1/m"], "prices": prices, "quality": {"s0": 0.8, "s1": 0.8}}
    policy = Policy(min_quality=0.6, explore=0)
    chosen = []
    for number in range(2):
        async with kit(tmp_path, settings=tables) as made:
            del made.client.router.decide  # the kit's own order of routes
            for server in made.servers:
                server.script(answering("x"))
            answer = await made.client.chat.completions.create(model="auto", messages=ASK, policy=policy)
            chosen.append(answer.meta.route.chosen)
            for _ in range(8 if not number else 0):
                made.client.feedback(answer.meta.id, False)
    assert chosen == ["s0/m", "s1/m"]
