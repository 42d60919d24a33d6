"""The union of several drafters' trees: merging, separate siblings, and reporting accepted paths."""

from __future__ import annotations

import numpy as np
import pytest
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import (
    DrafterChosenChain,
    GrownTree,
    UnionShape,
    chain,
    clip_shape,
    shape_size,
)
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.union import UnionDrafter, UnionMember, add_to_union
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.token_tree import ROOT, TokenTree
from tiny_models import run, sequence

Q = np.full(10, 0.1)


def joined(*trees):
    union = TokenTree()
    return union, [add_to_union(union, tree) for tree in trees]


def test_equal_picked_tokens_are_merged():
    union, places = joined(TokenTree.chain([1, 2, 3]), TokenTree.chain([1, 2, 4, 5]))
    assert union.tokens == [1, 2, 3, 4, 5]
    assert union.parents == [ROOT, 0, 1, 1, 3]
    assert places == [[0, 1, 2], [0, 1, 3, 4]]


def test_equal_drawn_tokens_are_not_merged():
    union, places = joined(TokenTree.chain([1, 2], [Q, Q]), TokenTree.chain([1, 2], [Q, Q]))
    assert union.tokens == [1, 2, 1, 2]
    assert union.parents == [ROOT, 0, ROOT, 2]
    assert places == [[0, 1], [2, 3]]


def test_a_picked_token_merges_with_an_equal_earlier_draw_but_not_with_a_later_one():
    union, _ = joined(TokenTree.chain([1], [Q]), TokenTree.chain([1, 7]))
    assert union.tokens == [1, 7]
    assert union.q[0] is Q
    union, _ = joined(TokenTree.chain([1, 7]), TokenTree.chain([1], [Q]))
    assert union.tokens == [1, 7, 1]


def test_each_member_gets_its_own_part_of_the_accepted_path():
    first, second = TokenTree.chain([1, 2, 3]), TokenTree.chain([1, 2, 4, 5])
    union, places = joined(first, second)
    path = [0, 1, 3, 4]
    assert [union.tokens[node] for node in path] == [1, 2, 4, 5]
    assert UnionMember(first, places[0]).path(path) == [0, 1]
    assert UnionMember(second, places[1]).path(path) == [0, 1, 2, 3]
    assert UnionMember(second, places[1]).path([]) == []


class FixedChain:
    """Proposes the same chain for every request, and records the calls it gets."""

    def __init__(self, tokens):
        self.tokens, self.received, self.shapes = tokens, [], []

    def begin(self, request):
        self.received.append("begin")
        return self.received.count("begin") > 1

    def propose(self, requests, shapes):
        self.shapes += shapes
        return [TokenTree.chain(self.tokens[: len(shape)]) for shape in shapes]

    def commit(self, request, tree, path):
        self.received.append((len(tree), path))

    def end(self, request):
        self.received.append("end")


def test_a_union_calls_all_its_drafters():
    models = [FixedChain([1, 2, 3]), FixedChain([1, 9])]
    drafter, request = UnionDrafter(models, NgramDrafter()), sequence([4, 1, 2, 8, 4])
    assert not drafter.begin(request)
    assert drafter.begin(request)
    (tree,) = drafter.propose([request], [UnionShape(chain(2), chain(4), 2)])
    assert [shape for model in models for shape in model.shapes] == [chain(2), chain(2)]
    assert sorted(map(tuple, tree.paths()[1:])) == [(1,), (1, 2), (1, 2, 8), (1, 2, 8, 4), (1, 9)]
    drafter.commit(request, tree, [tree.tokens.index(token) for token in (1, 2, 8)])
    assert [model.received[-1] for model in models] == [(2, [0, 1]), (2, [0])]
    drafter.end(request)
    assert [model.received[-1] for model in models] == ["end", "end"]


def test_a_union_of_wide_trees_is_limited_to_the_rows_of_one_pass(checkpoint):
    # Equal drawn tokens are not merged, so five trees of 63 tokens would need 315 rows.
    target, *drafts = (
        DecoderRunner.load(checkpoint(eos_token_id=None, seed=seed), dtype="float32", slots=1, context=400)
        for seed in range(6)
    )
    speculator = Speculator(
        target, {"union": UnionDrafter([DraftModel(draft, 300) for draft in drafts], NgramDrafter())}
    )
    params = {"temperature": 1.5, "seed": 1, "draft_tree": (7, 8), "draft_length": 2, "max_tokens": 6}
    request = sequence([5, 6, 7], method="union", **params)
    assert len(run(speculator, request)) == 6
    assert 0 < request.counts.drafted < MAX_PASS_ROWS * request.counts.steps


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (chain(9), chain(4)),
        ((3, 2, 1), (3, 2, 1)[:1] if shape_size((3, 2, 1)) <= 12 else chain(3)),
        (GrownTree(6, 15), GrownTree(4, 12)),
        (UnionShape(chain(6), chain(9), 2), UnionShape(chain(4), chain(4), 2)),
    ],
)
def test_clip_shape_limits_depth_and_size(shape, expected):
    assert clip_shape(shape, 4, 12) == expected


def test_clipped_shapes_never_exceed_their_limits():
    judged = DrafterChosenChain(15, lambda alpha: 15)
    shapes = [chain(10), (7, 8), (2, 2, 2), GrownTree(5, 15), judged, UnionShape((3, 2, 1), judged, 2)]
    for shape in shapes:
        for depth in range(8):
            for nodes in range(depth, 30):
                cut = clip_shape(shape, depth, nodes)
                assert len(cut) <= depth
                assert shape_size(cut) <= nodes
    assert [shape_size(shape) for shape in shapes] == [10, 63, 14, 15, 15, 45]
