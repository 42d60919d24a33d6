"""The memory of one model: weights, keys and values, tables, activations, and what loading takes."""

from __future__ import annotations

from dataclasses import dataclass

from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.device_verify import SORTED_AT_ONCE
from specclient_local.model.cuda_graphs.static_runner import ROWS, SLOTS
from specclient_local.model.int4_rows import GROUP_INPUTS
from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.paged_cache import PAGE
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.params import MAX_DRAFT_LENGTH

_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8": 8, "fp8": 8, "int4": 4}
_PACKED_BITS = {"int8": 8 + 16 / GROUP_INPUTS, "int4": 4 + 16 / GROUP_INPUTS}
"""Bits of a weight in compiled passes, its share of the group's scale included."""

_LAYERS_WHILE_PACKED = 4
"""Layers that are in memory as they are in the file while one is packed: the pages of the file that were
read, their fused copies, and what the C library keeps of the layer before."""

_DISTRIBUTIONS = 3
"""Distributions over the vocabulary of each row that a round holds at once: target, draft and an intermediate
result."""

_SORT, _SORTED_COPIES = 24, 3
"""Bytes of a sorted logit: places, sums and their differences; and copies in the data type of
probabilities. Kernels of top-k and top-p need less: a few bytes for each logit of a block."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The memory of one model that the built-in decoder runs.

    Attributes:
        name: for error messages: ``target``, ``draft``, …
        config: the model's shape.
        dtype: data type of computation.
        kv_dtype: data type of keys and values; None for ``dtype``.
        quantize: data type of projections and head where it is not ``dtype``.
        copies_head: whether a tied head is stored separately from the embedding; the CPU's kernels need
            another layout.
        shares_weights: whether it uses another model's weights, as a draft of the target's layers does.
        taps: number of layers after which hidden states are kept for heads.
        numbers: number of weights that replaces the decoder's; for heads.
        spare: positions per slot beyond the context.
        static: whether rounds of this target run on the device with static shapes.
        packed: whether layers are read and packed one by one, for compiled passes.
        file_dtype: data type in which the weights are read.
        paged: whether its keys and values, or hidden states, are in pages that all slots share.
    """

    name: str
    config: DecoderConfig
    dtype: str = "float32"
    kv_dtype: str | None = None
    quantize: str | None = None
    copies_head: bool = True
    shares_weights: bool = False
    taps: int = 0
    numbers: int | None = None
    spare: int = 0
    static: bool = False
    packed: bool = False
    file_dtype: str = "float32"
    paged: bool = False

    @property
    def parameters(self) -> int:
        """Number of weights in its matrices."""
        return self.config.parameters if self.numbers is None else self.numbers

    @property
    def weights(self) -> int:
        """Bytes of its matrices; does not include biases, norms and scales, at most a few percent."""
        c = self.config
        if self.shares_weights:
            return 0
        if self.numbers is not None:
            return self.numbers * _BITS[self.dtype] // 8
        embedding = c.vocab_size * c.hidden_size
        head = embedding if not c.tied or self.copies_head or self.quantize else 0
        inner = c.parameters - (1 if c.tied else 2) * embedding
        held: float = _BITS[self.quantize or self.dtype]
        if self.packed:
            held = _PACKED_BITS.get(self.quantize or self.dtype, held)
        return int((inner + head) * held + embedding * _BITS[self.dtype]) // 8

    @property
    def loading(self) -> int:
        """Bytes that are needed beside the weights while they are loaded onto a CPU.

        Where all of them are loaded before they are packed or converted, as much as the weights.
        """
        c = self.config
        if self.shares_weights or not c.layers:
            return 0
        if not self.packed:
            return self.weights
        embedding = c.vocab_size * c.hidden_size
        layer = (c.parameters - (1 if c.tied else 2) * embedding) // c.layers
        return _LAYERS_WHILE_PACKED * max(layer, embedding) * _BITS[self.file_dtype] // 8

    @property
    def kv_per_token(self) -> int:
        """Bytes of keys and values, or of hidden states, per position."""
        c = self.config
        numbers = 2 * c.kv_layers * c.kv_heads * c.head_dim
        states = self.taps * c.hidden_size
        return (numbers * _BITS[self.kv_dtype or self.dtype] + states * _BITS[self.dtype]) // 8

    def caches(self, slots: int, context: int) -> int:
        """Bytes of the KV caches or hidden states of ``slots`` slots; KV caches grow in whole blocks."""
        positions = self._positions(context)
        blocks = positions if self.taps else -(-positions // POSITION_BLOCK) * POSITION_BLOCK
        return slots * (blocks * self.kv_per_token + self.states)

    def pages(self, slots: int, tokens: int) -> int:
        """Bytes of pages for ``tokens`` positions, and of a page for each slot that padding rows write."""
        return (tokens + slots * PAGE) * self.kv_per_token

    @property
    def states(self) -> int:
        """Bytes of a slot's recurrent states, before and after the last pass, and of its rows; float32."""
        delta = self.config.delta
        if delta is None or not self.config.layers:
            return 0
        each = 2 * delta.state_size + delta.recorded(MAX_ROWS_PER_REQUEST)
        return sum(delta.recurrent) * each * 4

    def _positions(self, context: int) -> int:
        return min(context, self.config.context) + self.spare

    def tables(self, context: int) -> int:
        """Bytes of attention masks and rotation tables, which do not depend on the number of slots."""
        c, context = self.config, self._positions(context)
        if not c.layers:
            return 0
        masks = (
            (1 if c.window is None else 2)
            * MAX_PASS_ROWS
            * 2
            * (context + POSITION_BLOCK)
            * _BITS[self.dtype]
            // 8
        )
        return masks + context * c.head_dim * 4

    @property
    def passes(self) -> int:
        """Bytes of the activations of the largest pass: a full prefill chunk with all its logits."""
        c = self.config
        widths = 3 * c.hidden_size + (2 * c.heads + 2 * c.kv_heads) * c.head_dim + 3 * c.intermediate_size
        return MAX_PASS_ROWS * (widths * _BITS[self.dtype] // 8 + 4 * c.vocab_size)

    def rounds(self, slots: int) -> int:
        """Bytes of the largest recorded round: logits, and the target's and the draft's probabilities.

        All recordings share this memory. Half-precision logits are sampled in float32, others in float64; see
        :mod:`specclient_local.model.cuda_graphs.device_verify`. For top-k and top-p, a number of logits is
        sorted at a time.
        """
        if not self.static or not slots:
            return 0
        seats, vocab, each = min(slots, SLOTS[-1]), self.config.vocab_size, _BITS[self.dtype] // 8
        rows = seats * (MAX_DRAFT_LENGTH + 1)
        p = 8 if each == 4 else 4
        cuts = max(vocab, min(rows * vocab, SORTED_AT_ONCE)) * (_SORT + _SORTED_COPIES * p)
        return seats * ROWS[-1] * vocab * each + rows * vocab * (each + _DISTRIBUTIONS * p) + cuts
