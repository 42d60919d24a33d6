"""The mode in which a model of transformers runs: determined at load, by comparison with its plain passes."""

from __future__ import annotations

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.hf.attention import UnsupportedAttentionError, exchange_attention
from specclient_local.model.hf.passes import HfPasses
from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.request.token_tree import ROOT, TokenTree

_PROBE = 24
"""Number of tokens that are compared."""

_COUNTS = (2, 3, 5, 8, MAX_ROWS_PER_REQUEST)
"""Batch sizes for which rows are compared with single rows."""


def choose_mode(passes: HfPasses) -> bool:
    """Determine whether a model runs with tree masks, and set ``passes.masked``.

    Its attention is replaced by that of ``hf.attention`` if the model then gives the same logits.

    Returns:
        Whether its attention was replaced.

    Raises:
        CheckpointError: the model cannot run token by token.
    """
    net, config = passes.net, passes.config
    probe = _CacheProbe(passes)
    its_own = net.config._attn_implementation  # there is no public way to read it
    takes_places = {"position_ids", "attention_mask"} <= set(passes.forward_parameters)
    windowed = config.window is not None
    if takes_places and exchange_attention(net):
        # A layer that does not pass its window on would attend to too many positions. The probe is too short
        # to show that, so the windows that the layers passed are compared with the configuration.
        if probe.agrees() and bool(passes.windows) == windowed:
            return True
        net.set_attn_implementation(its_own)
    if takes_places and not windowed and probe.agrees():
        return False
    passes.masked = False
    if not probe.agrees():
        raise CheckpointError(
            f"{net.name_or_path}: {config.model_type} gives other logits with a cache than "
            "without, so it cannot be run token by token. Choose a decoder-only model."
        ) from probe.refused
    return False


class _CacheProbe:
    """Compares a model's logits with a cache with those of one plain pass.

    Attributes:
        refused: the last error that the model raised; None if it raised none.
    """

    def __init__(self, passes: HfPasses) -> None:
        self._passes = passes
        vocab = passes.config.vocab_size
        self._ids = [i * 7 % vocab for i in range(min(_PROBE, passes.context))]
        with torch.inference_mode():
            ids = torch.tensor([self._ids], device=passes.device)
            self._expected: Tensor = passes.net(ids, use_cache=False).logits[0]
        self.refused: Exception | None = None

    def agrees(self) -> bool:
        """Return whether the present mode gives the logits ``[N, V]`` of the plain pass."""
        passes, ids, expected = self._passes, self._ids, self._expected
        passes.most_rows = MAX_PASS_ROWS
        passes.reset_slots(1, _PROBE + 3)
        half = len(ids) // 2
        right, tree = ids[half:], TokenTree()
        tree.add(ROOT, (right[0] + 1) % passes.config.vocab_size)
        node = ROOT
        for token in right:
            node = tree.add(node, token)
        try:
            if half > 1:
                passes.prefill(0, ids[: half - 1])
            rows = passes.score_part(SlotInput(0, ids[half - 1 : half], tree))
        except (
            UnsupportedAttentionError,
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
        ) as error:
            self.refused = error
            return False
        rows = rows[[0, *range(2, len(rows))]]
        bound = 1e-3 if expected.dtype == torch.float32 else 0.05
        return bool((rows - expected[half - 1 :]).abs().max() <= bound * expected.abs().max())


def rows_keep_bits(passes: HfPasses) -> bool:
    """Return whether rows are bit-identical alone and in a batch."""
    starts = [5, POSITION_BLOCK - MAX_ROWS_PER_REQUEST // 2]
    vocab = passes.config.vocab_size
    passes.most_rows = MAX_PASS_ROWS
    for start in starts:
        if start + MAX_ROWS_PER_REQUEST > passes.context:
            continue
        passes.reset_slots(1, start + MAX_ROWS_PER_REQUEST)
        ids = [i * 11 % vocab for i in range(start + MAX_ROWS_PER_REQUEST)]
        passes.prefill(0, ids[:start])
        alone = torch.cat([passes.forward(0, [token]) for token in ids[start:]])
        for count in _COUNTS:
            passes.truncate(0, start)
            if not torch.equal(passes.forward(0, ids[start : start + count]), alone[:count]):
                return False
    return True
