"""The drafts of a round whose requests get their lengths together."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from specclient_local.decoding.round_entry import RoundEntry
from specclient_local.drafting.batch_lengths import BatchLengths, TimedRound
from specclient_local.drafting.length_policy import AdaptiveLength, LengthPolicy
from specclient_local.request.params import Method


def plan_batch(
    drafting: Seq[RoundEntry],
    policies: Seq[LengthPolicy],
    lengths: Mapping[Method, BatchLengths],
    running: int,
) -> TimedRound | None:
    """Choose the lengths of all drafts together; None if they are not all adaptive chains of one method.

    Args:
        drafting: those that may draft.
        policies: their length policies.
        lengths: what chooses the lengths, by method.
        running: number of sequences of the round.
    """
    adaptive = [policy for policy in policies if isinstance(policy, AdaptiveLength)]
    sequences = [entry.sequence for entry in drafting]
    if not adaptive or len(adaptive) < len(policies) or len({each.method for each in sequences}) > 1:
        return None
    if any(each.params.draft_tree is not None for each in sequences):
        return None
    kind = running, any(each.params.temperature > 0.0 for each in sequences)
    context = sum(len(each.tokens) for each in sequences) // len(sequences)
    return lengths[sequences[0].method].next(adaptive, context, running - len(drafting), kind)
