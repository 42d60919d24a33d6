"""Compiled attention: blocks of many queries, rows of a prompt, and keys and values in bfloat16."""

from __future__ import annotations

import pytest
import torch
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.kv_cache import KVCache
from specclient_local.model.native import build, packed_weights
from specclient_local.request.token_tree import TokenTree

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

SHAPES = {
    "heads of 64": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "head_dim": 64,
        "max_position_embeddings": 256,
    },
    "one key head, parts of vectors": {
        "hidden_size": 48,
        "head_dim": 20,
        "num_attention_heads": 6,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
    },
    "a window": {"kind": "mistral", "sliding_window": 50, "max_position_embeddings": 256},
}
FORMATS = {"float32": ("float32", None), "bfloat16": ("bfloat16", None), "int8": ("float32", "int8")}
PROMPT = torch.randint(0, 300, (150,), generator=torch.Generator().manual_seed(2)).tolist()


def loaded(folder, name, slots=2):
    dtype, quantize = FORMATS[name]
    return load_model(folder, ModelPlacement(dtype, "cpu", quantize), slots=slots, context=256)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_a_long_prompt_are_bit_identical_however_it_is_cut(checkpoint, shape, name):
    one = loaded(checkpoint(**SHAPES[shape]), name)
    alone = torch.cat([one.score(0, [token]) for token in PROMPT])
    for cut in (0, 1, 63, 64, 65, 149):
        one.truncate(1, 0)
        parts = [one.read(1, part) for part in (PROMPT[:cut], PROMPT[cut:]) if part]
        assert torch.equal(torch.cat(parts), alone)
        assert torch.equal(one.cache.rows[:, 1, :, :150], one.cache.rows[:, 0, :, :150])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_below_a_long_prompt_is_bit_identical_to_its_paths(checkpoint, shape, name):
    one, tree = loaded(checkpoint(**SHAPES[shape]), name), TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (1, 10), (3, 11)]:
        tree.add(parent, token)
    found = one.score(0, PROMPT, tree)
    for path in ([0, 2], [1, 3, 4]):
        one.truncate(1, 0)
        alone = one.read(1, [*PROMPT, *(tree.tokens[node] for node in path)])[-len(path) - 1 :]
        assert torch.equal(found[[0, *(node + 1 for node in path)]], alone)


def test_keys_and_values_are_bfloat16_where_products_round_their_rows(checkpoint):
    folder = checkpoint(**SHAPES["heads of 64"])
    rounds = torch.bfloat16 if packed_weights.multiplies_bfloat16() else torch.float32
    expected = {"float32": torch.float32, "bfloat16": rounds, "int8": torch.bfloat16}
    assert {name: loaded(folder, name).cache.rows.dtype for name in FORMATS} == expected


def test_logits_with_rounded_keys_and_values_are_near_those_of_float32(checkpoint):
    one = loaded(checkpoint(**SHAPES["heads of 64"]), "int8")
    rounded = one.read(0, PROMPT)
    one.cache = KVCache(one.config, 2, 256, torch.float32)
    exact = one.read(0, PROMPT)
    assert 0 < (rounded - exact).norm() < 0.1 * exact.norm()
