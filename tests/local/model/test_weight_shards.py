"""Parts of a model's weights: together they are the whole, and a model that has no equal parts is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.weight_shards import WeightShard
from specclient_local.model.weights import load_weights

from specclient.errors import ConfigurationError


@torch.inference_mode()
def test_the_parts_of_a_models_matrices_are_the_whole(checkpoint):
    folder = checkpoint(attention_bias=True, mlp_bias=True)
    config = read_config(folder)
    whole = load_weights(folder, config)
    parts = [load_weights(folder, config, shard=WeightShard(rank, 2)) for rank in range(2)]
    for i, layer in enumerate(whole.layers):
        own = [part.layers[i] for part in parts]
        gates = [torch.cat([each.gate_up.chunk(2)[half] for each in own]) for half in range(2)]
        assert torch.cat(gates).equal(layer.gate_up)
        assert torch.cat([each.o for each in own], dim=1).equal(layer.o)
        assert torch.cat([each.down for each in own], dim=1).equal(layer.down)
        assert sum(each.qkv.numel() for each in own) == layer.qkv.numel()
        assert (own[0].o_bias + own[1].o_bias).equal(layer.o_bias), "a bias of a sum is added once"
        assert (own[0].down_bias + own[1].down_bias).equal(layer.down_bias)
    assert parts[0].head.equal(whole.head)


@pytest.mark.parametrize(
    ("changed", "named"), [("kv_heads", "3 key heads"), ("intermediate_size", "63 inner")]
)
def test_a_model_without_equal_parts_is_refused(checkpoint, changed, named):
    config = read_config(checkpoint())
    odd = dataclasses.replace(config, **{changed: int(named.split()[0])})
    with pytest.raises(ConfigurationError, match=f"does not divide the model's {named}"):
        WeightShard(0, 2).config(odd)
