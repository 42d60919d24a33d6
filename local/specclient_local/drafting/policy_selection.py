"""Turn what a request asks of its drafts into what decides them: a length, a rule, or measured costs."""

from __future__ import annotations

from specclient_local.drafting.drafter import Drafter, DraftShape, GrownTree, UnionShape
from specclient_local.drafting.length_policy import (
    AdaptiveLength,
    DoublingLength,
    DrafterChosenLength,
    FixedLength,
    LengthPolicy,
    StepLength,
    UnionLength,
)
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.retokenised import RetokenisedDrafter
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.union import UnionDrafter
from specclient_local.request.params import MAX_PREDICTED_LENGTH, MAX_TREE_NODES, SamplingParams
from specclient_local.request.sequence import Sequence

DEFAULT_DRAFT_LENGTH = 4
_GROWN = 3
"""Guesses kept of a grown tree for each level it may have; Medusa, whose levels cost no passes, keeps as many
as a tree may have, as its authors do."""


def length_policy_for(sequence: Sequence, drafter: Drafter, costs: RoundCosts | None) -> LengthPolicy:
    """Return what decides a request's drafts: the request itself, or how they fare.

    They follow no measured costs, and no load, for a seeded, sampled request: which random numbers go
    where depends on the drafts, and the same seed should give the same answer in any company, on the
    next run and on the next machine too.

    Args:
        sequence: the request.
        drafter: of its method.
        costs: of that method's rounds, where they are known.
    """
    params = sequence.params
    if isinstance(params.draft_length, int):
        return FixedLength(params.draft_length)
    if params.draft_length == "step":
        return StepLength()
    if costs is not None:
        costs = None if sequence.reproducible else costs.sampled() if params.temperature > 0.0 else costs
    if isinstance(drafter, PredictionDrafter):
        return DoublingLength(costs)
    if isinstance(drafter, NgramDrafter):
        return DrafterChosenLength(costs)
    widths = params.draft_tree is None and not isinstance(drafter, UnionDrafter | RetokenisedDrafter)
    models = FixedLength(_length(params)) if costs is None else AdaptiveLength(costs, widths=widths)
    if isinstance(drafter, UnionDrafter):
        return UnionLength(models, len(drafter.models), DrafterChosenLength(costs))
    return models


def _length(params: SamplingParams) -> int:
    """Return how deep to draft where nothing is known: as deep as the widths asked for."""
    tree = params.draft_tree
    return DEFAULT_DRAFT_LENGTH if tree is None or isinstance(tree, str) else len(tree)


def requested_shape(shape: DraftShape, sequence: Sequence) -> DraftShape:
    """Return the tree that a request asks for in a chain's place; the chain's length is the tree's depth."""
    tree = sequence.params.draft_tree
    if isinstance(shape, UnionShape):
        return UnionShape(requested_shape(shape.each, sequence), shape.lookup, shape.drafts)
    if tree is None or not isinstance(shape, tuple):
        return shape
    if tree == "grow":
        if sequence.method == "medusa" and shape:
            return GrownTree(len(shape), MAX_TREE_NODES)
        return GrownTree(len(shape), min(_GROWN * len(shape), MAX_PREDICTED_LENGTH))
    return tuple(tree)[: len(shape)]
