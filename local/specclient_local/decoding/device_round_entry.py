"""A sequence in a round on the device, and the drafters that draft there."""

from __future__ import annotations

from dataclasses import dataclass

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.medusa import MedusaDrafter
from specclient_local.drafting.parallel_eagle import ParallelEagleDrafter
from specclient_local.model.cuda_graphs.device_drafts import DeviceDraft, EagleDraft, MedusaDraft, ModelDraft
from specclient_local.model.cuda_graphs.round_layout import DeviceRoundRequest
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.heads.eagle_runner import EaglePasses
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.pass_input import EMPTY_TREE
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree


@dataclass(slots=True)
class DeviceRoundEntry:
    """One sequence in a round on the device.

    Attributes:
        sequence: the request.
        drafter: the drafter of its method; None if it decodes plainly.
        depth: number of tokens to draft.
        tree: the chain of a drafter without a model; empty if the draft model drafts.
        wanted: the length that was chosen for all requests that adapt, which ``depth`` cannot exceed.
    """

    sequence: Sequence
    drafter: Drafter | None = None
    depth: int = 0
    tree: TokenTree = EMPTY_TREE
    wanted: int = 0

    def request(self, depth: int, tail: int) -> DeviceRoundRequest:
        """Return the request in a round.

        Args:
            depth: number of tokens that the round drafts for its longest draft.
            tail: number of the sequence's last tokens that the draft on the device reads.
        """
        sequence = self.sequence
        sampled = sequence.params.temperature > 0.0
        return DeviceRoundRequest(
            slot=sequence.cache_slot,
            tokens=sequence.tokens[-tail:],
            start=len(sequence.tokens) - 1,
            depth=self.depth,
            params=sequence.params,
            given=self.tree.tokens or None,
            uniform=sequence.random.peek(2 * depth + 1) if sampled else (),
        )


def device_draft(drafter: Drafter, target: StaticRunner) -> DeviceDraft | None:
    """Return the form of a drafter that drafts in recorded rounds; None if it has none."""
    if isinstance(drafter, DraftModel):
        runner = drafter.runner
        fits = isinstance(runner, StaticRunner) and runner.device == target.device
        return ModelDraft(runner, target.context) if isinstance(runner, StaticRunner) and fits else None
    if target.states is None:
        return None
    if isinstance(drafter, ParallelEagleDrafter):
        return None  # it drafts on the host
    if isinstance(drafter, EagleDrafter) and isinstance(drafter.runner.decoder.passes, EaglePasses):
        return EagleDraft(drafter.runner, target.states, target.dense.ops, target.context)
    if isinstance(drafter, MedusaDrafter) and isinstance(drafter.heads, MedusaHeads):
        return MedusaDraft(drafter.heads, target.states, target.dense.ops)
    return None
