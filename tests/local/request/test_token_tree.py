"""Token trees: parents and children, ancestor masks, and the q of siblings."""

from __future__ import annotations

import numpy as np
import pytest
from specclient_local.request.token_tree import ROOT, TokenTree, probability_of, without_token


def bushy():
    tree = TokenTree()
    for parent, token in [(ROOT, 5), (ROOT, 6), (0, 7), (0, 8), (1, 7), (4, 9)]:
        tree.add(parent, token)
    return tree


def test_children_depths_and_ancestors():
    tree = bushy()
    assert list(tree.children(ROOT)) == [0, 1]
    assert list(tree.children(0)) == [2, 3]
    assert list(tree.children(5)) == []
    assert tree.depths() == [1, 1, 2, 2, 2, 3]
    seen = tree.ancestors()
    assert [list(np.flatnonzero(row)) for row in seen] == [
        [0],
        [0, 1],
        [0, 2],
        [0, 1, 3],
        [0, 1, 4],
        [0, 2, 5],
        [0, 2, 5, 6],
    ]
    assert len(tree) == 6
    assert not tree.is_chain


def test_an_empty_tree_and_a_chain_count_as_chains():
    assert TokenTree().is_chain
    assert TokenTree().ancestors().tolist() == [[True]]
    chain = TokenTree.chain([4, 4, 4])
    assert chain.is_chain
    assert chain.parents == [ROOT, 0, 1]
    assert chain.q == [None, None, None]
    np.testing.assert_array_equal(chain.ancestors(), np.tril(np.ones((4, 4), dtype=bool)))


@pytest.mark.parametrize("parent", [-2, 0, 7])
def test_a_parent_must_come_before_its_child(parent):
    with pytest.raises(ValueError, match=f"parent is {parent}; allowed is -1"):
        TokenTree().add(parent, 1)


def test_siblings_without_replacement_get_the_renormalised_rest_of_q():
    q = np.array([0.5, 0.3, 0.2])
    tree = TokenTree()
    tree.branch(ROOT, [1, 0], q)
    np.testing.assert_allclose(tree.q[0], q)
    np.testing.assert_allclose(tree.q[1], [0.5 / 0.7, 0.0, 0.2 / 0.7])
    for token in range(3):
        others = np.where(np.arange(3) == token, 0.0, q)
        np.testing.assert_array_equal(without_token(q, token), others / others.sum())
    with pytest.raises(ValueError, match="token 1 cannot have been drawn"):
        TokenTree().branch(ROOT, [1, 1], q)
    with pytest.raises(ValueError, match="token 2 cannot have been drawn"):
        TokenTree().branch(ROOT, [1, 2], 1)


def test_an_integer_stands_for_a_one_hot_distribution():
    assert probability_of(3, 3) == 1.0
    assert probability_of(3, 2) == 0.0
    assert without_token(3, 3) is None
    assert without_token(3, 2) == 3
    assert without_token(np.array([0.0, 1.0]), 1) is None
