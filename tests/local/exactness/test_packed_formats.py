"""Targets in bfloat16, int8 and int4 on a CPU: every method's greedy answers are those of plain decoding."""

from __future__ import annotations

import pytest
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.engine import Engine
from specclient_local.measure.prompts import held_out
from tiny_models import load, noisy_copy, write_checkpoint

FORMATS = {"bfloat16": None, "int8": "int8", "int4": "int4"}
NEW = 20
PROMPTS = [[5, 6, 7, 8, 5, 6], [9] * 8, [11, 12, 13], [2, 3, 2, 3, 2, 3, 2]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    target = write_checkpoint(folder / "t", seed=1, spread=0.2, eos_token_id=None, num_hidden_layers=3)
    return target, noisy_copy(target, folder / "a", 0.02)


def answers(engine, prompts, **params):
    """Answer prompts in one batch, greedily; return their tokens."""
    events = [[] for _ in prompts]
    for prompt, own in zip(prompts, events, strict=True):
        engine.add(prompt, own.append, temperature=0, **params)
    while engine.step():
        pass
    for own in events:
        assert not isinstance(own[-1], BaseException), own[-1]
    return [own[-1].generation.token_ids for own in events]


@pytest.mark.parametrize("name", FORMATS)
def test_methods_and_trees_in_batches_equal_plain_decoding(folders, name):
    target, draft = folders
    with load(target, [draft], layer_skip=2, slots=4, dtype="bfloat16", quantize=FORMATS[name]) as engine:
        expected = [answers(engine, [prompt], max_tokens=NEW, method="plain")[0] for prompt in PROMPTS]
        assert answers(engine, PROMPTS, max_tokens=NEW, method="plain") == expected
        for method in ("draft", "ngram", "layer_skip", "union"):
            for length in (1, 3, 8, None):
                found = answers(engine, PROMPTS, max_tokens=NEW, method=method, draft_length=length)
                assert found == expected, (method, length)
        for tree in ((3, 2, 1), (2, 2), "grow"):
            assert answers(engine, PROMPTS, max_tokens=NEW, method="draft", draft_tree=tree) == expected, tree


@pytest.mark.parametrize("name", FORMATS)
def test_the_bundled_pair_and_its_heads_equal_plain_decoding(name):
    options = {"dtype": "bfloat16", "quantize": FORMATS[name], "slots": 3, "threads": 1}
    heads = ["bundled:eagle3", "bundled:medusa"]
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", heads=heads, **options) as engine:
        prompts = held_out(engine.tokenizer, 3)
        expected = answers(engine, prompts, max_tokens=NEW, method="plain")
        for method in ("draft", "eagle", "medusa", "ngram"):
            assert answers(engine, prompts, max_tokens=NEW, method=method, draft_length=3) == expected
        alone = engine.generate(prompts[0], max_tokens=NEW, temperature=0, method="draft", draft_length=4)
        assert alone.token_ids == expected[0]
        assert alone.speculation.accepted


def test_a_target_in_four_bits_drafts_for_its_own_weights_in_bfloat16():
    target = BUNDLED / "target"
    with Engine.load(target, target, dtype="bfloat16", draft_quantize="int4", threads=1) as engine:
        prompts = held_out(engine.tokenizer, 2)
        for prompt in prompts:
            plain = engine.generate(prompt, max_tokens=NEW, temperature=0, method="plain")
            own = engine.generate(prompt, max_tokens=NEW, temperature=0, method="draft", draft_length=4)
            assert own.token_ids == plain.token_ids
            assert own.speculation.acceptance_rate > 0.3
