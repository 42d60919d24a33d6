"""The rounds that requests need most, recorded when an engine loads."""

from __future__ import annotations

from specclient_local.drafting.policy_selection import DEFAULT_DRAFT_LENGTH
from specclient_local.model.cuda_graphs.device_drafts import ModelDraft
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.cuda_graphs.round_layout import DeviceRoundRequest
from specclient_local.model.cuda_graphs.static_runner import PROMPT_ROWS
from specclient_local.request.params import Method, SamplingParams


def record_common(rounds: DeviceRounds, method: Method) -> None:
    """Record the rounds that requests of a method need most, so that none is recorded while they run.

    These are chunks of prompts, plain rounds, and rounds with ``DEFAULT_DRAFT_LENGTH`` tokens, greedy and
    sampled, for every number of slots that is recorded. Other shapes are recorded when they first occur.
    Does nothing on a device without recordings.

    Args:
        rounds: the rounds of a target whose slots are all free.
        method: the default method of requests.

    Raises:
        EngineError: a round does not fit into the device's memory.
    """
    target = rounds.target
    if not target.recorder.records:
        return
    draft = rounds.drafts.get(method)
    drafter = None if draft is None else method
    for runner in (target, *([draft.runner] if isinstance(draft, ModelDraft) else [])):
        for rows in PROMPT_ROWS:
            runner.prefill(0, [0] * min(rows, runner.context))
            runner.truncate(0, 0)
    for slots in target.batch_sizes:
        for depth in (0,) if drafter is None else (0, DEFAULT_DRAFT_LENGTH):
            for temperature in (0.0, 1.0):
                params, numbers = SamplingParams(temperature=temperature), [0.5] * (2 * depth + 1)
                requests = [
                    DeviceRoundRequest(slot, (0, 0), 1, depth, params, uniform=numbers)
                    for slot in range(slots)
                ]
                rounds.run(requests, drafter)
