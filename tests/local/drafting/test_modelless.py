"""Drafters without a model: the table of them, and their length policies."""

import pytest
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting import modelless
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.length_policy import AdaptiveLength, DoublingLength, DrafterChosenLength
from specclient_local.drafting.policy_selection import length_policy_for
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.model.decoder_runner import DecoderRunner
from tiny_models import sequence

from specclient.errors import BadRequestError


def test_every_speculator_has_the_drafters_without_a_model(checkpoint):
    speculator = Speculator(DecoderRunner.load(checkpoint(), dtype="float32", slots=1, context=64))
    assert {type(drafter) for drafter in speculator.drafters.values()} == {
        *modelless.MODELLESS_DRAFTERS.values()
    }
    assert "ngram" in modelless.MODELLESS_ENGINE_METHODS
    assert "prediction" not in modelless.MODELLESS_ENGINE_METHODS


def test_a_method_without_a_drafter_raises_with_the_available_ones(checkpoint):
    speculator = Speculator(DecoderRunner.load(checkpoint(), dtype="float32", slots=1, context=64))
    with pytest.raises(
        BadRequestError, match="method is 'draft'; allowed is one of plain, prediction, ngram"
    ):
        speculator.prefill(sequence([1, 2, 3], method="draft", max_tokens=4))


@pytest.mark.parametrize(
    ("length", "policy"),
    [("adaptive", AdaptiveLength), ("doubling", DoublingLength), ("own", DrafterChosenLength)],
)
def test_a_drafters_length_attribute_selects_its_policy(length, policy):
    drafter = type("Chains", (Drafter,), {"length": length})()
    assert not drafter.adaptive_trees
    assert not drafter.device_rounds
    costs = RoundCosts(0.1, (1.0, 1.1, 1.2))
    assert isinstance(length_policy_for(sequence([1, 2], method="ngram"), drafter, costs), policy)
