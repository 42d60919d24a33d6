"""Calibration of a target with static shapes: it times the rounds that will run."""

from __future__ import annotations

import pytest
import tiny_heads
from specclient_local.loading.calibration import Calibration
from specclient_local.loading.device_calibration import DeviceCalibration
from specclient_local.loading.drafter_set import build_drafters, drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.decoder_runner import DecoderRunner

PLACED = ModelPlacement(device="cpu", graphs="on")


class RoundClock:
    """A clock that only rounds on the device advance: by their drafts, and by their rows."""

    def __init__(self, monkeypatch):
        self.now, self.rounds = 0.0, []
        original = DeviceRounds.run

        def run(rounds, requests, drafter=None):
            rows = sum(request.depth + 1 for request in requests)
            steps = requests[0].depth if drafter is not None else 0
            sampled = requests[0].params.temperature > 0.0
            self.rounds.append((len(requests), requests[0].depth, drafter, sampled))
            self.now += 0.01 + 0.0001 * rows + steps * (0.002 + 0.001 * sampled)
            return original(rounds, requests, drafter)

        monkeypatch.setattr(DeviceRounds, "run", run)

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    return RoundClock(monkeypatch)


def test_costs_are_those_of_rounds_on_the_device(checkpoint, clock):
    target = load_model(checkpoint(), PLACED, slots=4, context=128)
    draft = load_model(checkpoint(seed=3), PLACED, slots=4, context=128, exact=False)
    measured = DeviceCalibration(target, 4, clock)
    unit = 0.01 + 0.0001
    assert measured.target.verify[0] == 1.0
    assert measured.target.verify[4] == pytest.approx((0.01 + 0.0005) / unit)
    assert measured.target.full_verify[0] == pytest.approx((0.01 + 0.0004) / unit)
    cost = measured.draft(draft)
    assert cost.draft == pytest.approx(0.002 / unit)
    assert cost.drawn == pytest.approx(0.001 / unit)
    assert cost.full_draft == pytest.approx(0.002 / unit)
    assert len(cost.verify) == 11
    assert (4, 4, "timed", False) in clock.rounds
    assert [each.slots for each in cost.recorded] == [1, 4]
    for each in cost.recorded:
        assert each.draft == pytest.approx(0.002 / unit)
        assert each.verify[4] == pytest.approx((0.01 + 0.0001 * 5 * each.slots) / unit)
    assert cost.round(4, drafting=2) == cost.round(4, drafting=4), "two requests run in a round of four"
    assert [target.length(slot) for slot in range(4)] == [0] * 4


def test_rounds_of_heads_are_timed_on_the_device(checkpoint, clock, tmp_path):
    target = load_model(checkpoint(num_hidden_layers=4), PLACED, slots=2, context=128, taps=(4,))
    method, drafter = drafter_for_heads(target, tiny_heads.medusa(tmp_path))
    cost = DeviceCalibration(target, 2, clock).drafter(drafter, drafter.depth)
    assert method == "medusa"
    assert cost.draft == pytest.approx(0.002 / 0.0101)
    assert len(cost.verify) == 4
    assert (1, 3, "timed", False) in clock.rounds


def test_the_calibration_is_chosen_by_the_target(checkpoint, clock):
    folder = checkpoint()
    build_drafters(load_model(folder, PLACED, slots=2, context=128), [], method="auto", slots=2)
    assert clock.rounds
    clock.rounds.clear()
    plain = DecoderRunner.load(folder, dtype="float32", slots=2, context=128)
    build_drafters(plain, [], method="auto", slots=2)
    Calibration(plain, 2)
    assert not clock.rounds
