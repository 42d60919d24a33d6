"""Selects a request's length policy: fixed, by a rule, or by measured costs."""

from __future__ import annotations

from specclient_local.drafting.drafter import Drafter, DraftShape, GrownTree, UnionShape
from specclient_local.drafting.length_policy import (
    AdaptiveLength,
    DoublingLength,
    DrafterChosenLength,
    FixedLength,
    LengthPolicy,
    RecentAcceptance,
    StepLength,
    UnionLength,
)
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.union import UnionDrafter
from specclient_local.request.params import MAX_PREDICTED_LENGTH, MAX_TREE_NODES, SamplingParams
from specclient_local.request.sequence import Sequence

DEFAULT_DRAFT_LENGTH = 4
_GROWN_NODES_PER_LEVEL = 3
"""Nodes to keep per level of a grown tree. A tree of Medusa or P-EAGLE heads keeps the maximum number, as
Medusa's authors' does, because its levels need no further passes."""


def length_policy_for(
    sequence: Sequence,
    drafter: Drafter,
    costs: RoundCosts | None,
    *,
    trees: bool = True,
    recent: RecentAcceptance | None = None,
) -> LengthPolicy:
    """Return the length policy of a request.

    The policy of a sampled request with a seed uses neither measured costs nor the load. The drafts determine
    which random number is used for which token, and a seed must give the same answer in any batch, in any run
    and on any machine.

    Args:
        sequence: the request.
        drafter: the drafter of its method.
        costs: measured costs of that method's rounds, if known.
        trees: whether the rounds can verify trees.
        recent: the acceptance of the method's earlier drafts; None to assume a prior.
    """
    params = sequence.params
    if isinstance(params.draft_length, int):
        return FixedLength(params.draft_length)
    if params.draft_length == "step":
        return StepLength()
    if costs is not None:
        costs = None if sequence.reproducible else costs.sampled() if params.temperature > 0.0 else costs
    if drafter.length == "doubling":
        return DoublingLength(costs)
    if drafter.length == "own":
        return DrafterChosenLength(costs)
    widths = trees and params.draft_tree is None and drafter.adaptive_trees
    models: LengthPolicy = FixedLength(_default_length(params))
    if costs is not None:
        models = AdaptiveLength(costs, widths=widths, recent=recent)
    if isinstance(drafter, UnionDrafter):
        return UnionLength(models, len(drafter.models), DrafterChosenLength(costs))
    return models


def _default_length(params: SamplingParams) -> int:
    """Return the draft length without measured costs: the depth of the requested widths, or the default."""
    tree = params.draft_tree
    return DEFAULT_DRAFT_LENGTH if tree is None or isinstance(tree, str) else len(tree)


def requested_shape(shape: DraftShape, sequence: Sequence) -> DraftShape:
    """Return the tree that a request sets instead of a chain; the chain's length limits its depth."""
    tree = sequence.params.draft_tree
    if isinstance(shape, UnionShape):
        return UnionShape(requested_shape(shape.each, sequence), shape.lookup, shape.drafts)
    if tree is None or not isinstance(shape, tuple):
        return shape
    if tree == "grow":
        if sequence.method in ("medusa", "peagle") and shape:
            return GrownTree(len(shape), MAX_TREE_NODES)
        return GrownTree(len(shape), min(_GROWN_NODES_PER_LEVEL * len(shape), MAX_PREDICTED_LENGTH))
    return tuple(tree)[: len(shape)]
