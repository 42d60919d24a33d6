"""Turn what a request asks of its drafts into what decides them: a length, a rule, or measured costs."""

from __future__ import annotations

from specclient_local.drafting.base import Drafter, Grown, Joint, Shape
from specclient_local.drafting.costs import Costs
from specclient_local.drafting.length import (
    DraftLength,
    FixedLength,
    JointLength,
    JudgedLength,
    Length,
    RunLength,
    StepLength,
)
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.retokenised import RetokenisedDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.params import MAX_PREDICTED_LENGTH, MAX_TREE_NODES, SamplingParams
from specclient_local.sequence import Sequence

DEFAULT_DRAFT_LENGTH = 4
_GROWN = 3
"""Guesses kept of a grown tree for each level it may have; Medusa, whose levels cost no passes, keeps as many
as a tree may have, as its authors do."""


def rule(sequence: Sequence, drafter: Drafter, costs: Costs | None) -> Length:
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
        return RunLength(costs)
    if isinstance(drafter, NgramDrafter):
        return JudgedLength(costs)
    widths = params.draft_tree is None and not isinstance(drafter, UnionDrafter | RetokenisedDrafter)
    models = FixedLength(_length(params)) if costs is None else DraftLength(costs, widths=widths)
    if isinstance(drafter, UnionDrafter):
        return JointLength(models, len(drafter.models), JudgedLength(costs))
    return models


def _length(params: SamplingParams) -> int:
    """Return how deep to draft where nothing is known: as deep as the widths asked for."""
    tree = params.draft_tree
    return DEFAULT_DRAFT_LENGTH if tree is None or isinstance(tree, str) else len(tree)


def widened(shape: Shape, sequence: Sequence) -> Shape:
    """Return the tree that a request asks for in a chain's place; the chain's length is the tree's depth."""
    tree = sequence.params.draft_tree
    if isinstance(shape, Joint):
        return Joint(widened(shape.each, sequence), shape.lookup, shape.drafts)
    if tree is None or not isinstance(shape, tuple):
        return shape
    if tree == "grow":
        if sequence.method == "medusa" and shape:
            return Grown(len(shape), MAX_TREE_NODES)
        return Grown(len(shape), min(_GROWN * len(shape), MAX_PREDICTED_LENGTH))
    return tuple(tree)[: len(shape)]
