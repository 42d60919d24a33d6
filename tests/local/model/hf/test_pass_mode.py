"""The mode of a model run by transformers: with masks, path by path, or refused."""

from __future__ import annotations

import pytest
from specclient_local.model.hf.checkpoint import load_net, read_hf_config
from specclient_local.model.hf.pass_mode import choose_mode
from specclient_local.model.hf.passes import HfPasses
from specclient_local.model.hf.runner import HfRunner
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError


@pytest.mark.parametrize(
    ("kind", "settings", "masked"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}, True),
        ("bloom", {"n_layer": 2, "n_head": 4}, False),
    ],
)
def test_masks_are_used_where_the_models_attention_can_be_replaced(checkpoint, kind, settings, masked):
    folder = checkpoint(kind=kind, intermediate_size=64, spread=0.3, **settings)
    config = read_hf_config(folder)
    passes = HfPasses(load_net(folder, config, "float32", "cpu"), config, 100)
    assert choose_mode(passes) == masked
    assert passes.masked == masked


def test_a_model_with_bidirectional_attention_is_rejected(tmp_path):
    folder = write_checkpoint(tmp_path, kind="bert")
    with pytest.raises(CheckpointError, match="bert gives other logits with a cache than without"):
        HfRunner.load(folder, dtype="float32", slots=2, context=100)
