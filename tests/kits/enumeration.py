"""Exact enumeration of a verification walk: every outcome with its probability."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from specclient_local.decoding.verify import verify
from specclient_local.request.token_tree import ROOT
from tiny_models import enumerate_outcomes

VOCAB = 4


def random_distribution(rng, zeros=0):
    p = rng.dirichlet(np.full(VOCAB, 0.7))
    p[rng.choice(VOCAB, zeros, replace=False)] = 0.0
    return p / p.sum()


class Target:
    """A target model with a random distribution for every context, created on first use.

    With ``greedy``, it gives the most likely token instead of the distribution.
    """

    def __init__(self, rng, *, greedy=False):
        self.rng, self.greedy, self.known = rng, greedy, {}

    def __call__(self, context):
        if context not in self.known:
            p = random_distribution(self.rng, zeros=int(self.rng.integers(0, 2)))
            self.known[context] = int(p.argmax()) if self.greedy else p
        return self.known[context]

    def of(self, context, token):
        p = self(context)
        return float(p == token) if isinstance(p, int) else float(p[token])


def path_to(tree, node):
    return () if node == ROOT else (*path_to(tree, tree.parents[node]), tree.tokens[node])


def emitted_path(tree, target, chooser, walk):
    """Return the verdict of a walk over a tree."""
    rows = [target(())] + [target(path_to(tree, node)) for node in range(len(tree))]
    return walk(tree, rows, chooser)


def emitted_tokens(tree, target, chooser, walk):
    verdict = emitted_path(tree, target, chooser, walk)
    return (*(tree.tokens[node] for node in verdict.path), verdict.token)


def worst_error(propose, target, horizon, walk=verify):
    """Return the largest error in the distribution of the first ``horizon`` tokens.

    The error is the absolute difference between the probability of a token sequence under the walk and under
    the target. If a round yields fewer tokens, plain draws from the target follow; their distribution is the
    target's by definition.
    """
    distribution = defaultdict(float)
    for weight, tokens in enumerate_outcomes(lambda c: emitted_tokens(propose(c), target, c, walk)):
        contexts = [(tokens[:horizon], weight)]
        for _ in range(horizon - len(tokens[:horizon])):
            contexts = [((*c, t), w * target.of(c, t)) for c, w in contexts for t in range(VOCAB)]
        for context, w in contexts:
            distribution[context] += w
    worst = abs(sum(distribution.values()) - 1.0)
    for context in np.ndindex(*[VOCAB] * horizon):
        exact = float(np.prod([target.of(context[:i], context[i]) for i in range(horizon)]))
        worst = max(worst, abs(distribution[context] - exact))
    return worst
