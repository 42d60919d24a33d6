"""Forward passes by compiled code: packed weights, and one call per pass."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import POINTER, addressof, c_int64
from typing import ClassVar

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_weights import EagleWeights
from specclient_local.model.kv_cache import SlotRows
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import (
    GATES_PER_GROUP,
    PackedWeights,
    can_be_packed,
    interleave_gates,
    rounds_rows,
    scratch_for_rows,
)
from specclient_local.model.native.structs import (
    FusionStruct,
    LayerStruct,
    LinearStruct,
    ModelStruct,
    PassStruct,
    SpanStruct,
)
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.weights import DecoderWeights, LayerWeights

MIN_PARALLEL_PRODUCTS = 4_000_000
"""Minimum products (rows times weights) of a pass for which several threads are used. A pass of a tenth of a
millisecond does not pay for waking threads and a dozen barriers."""

MIN_PARALLEL_PRODUCTS_AWAKE = 500_000
"""The same if the threads are awake already: in the passes of a chain, or before a target's pass."""

_QUERIES = 16
"""Queries of one key head that a thread computes together; ``MOST_QUERIES`` in ``attention.h``."""

_WHOLE = 16
"""Positions of which a query's scratch memory has a multiple: numbers of the largest vectors."""

_SMALLEST = 16
"""Initial rows of the scratch memory, which grows by doubling."""


def matrix_shapes(c: DecoderConfig) -> list[tuple[int, int]]:
    """Return the shapes ``(out, in)`` of a decoder's matrices."""
    inner, hidden, ff = c.heads * c.head_dim, c.hidden_size, c.intermediate_size
    layer = [
        (inner + 2 * c.kv_heads * c.head_dim, hidden),
        (hidden, inner),
        (2 * ff + 2 * GATES_PER_GROUP, hidden),
        (hidden, ff),
    ]
    return [(c.vocab_size, hidden), *(c.layers * layer)]


class NativePasses:
    """A model's packed weights, and its passes; float32 on the CPU.

    Every row has the same bits in a pass of any size, on any number of threads.

    Args:
        config: its configuration.
        weights: its weights; copied, except the embedding.
        turns: ``[C, 1, D / 2]`` complex64, rotary embeddings of all positions.
        run: the compiled library.
        rounded_to: one of :data:`~specclient_local.model.native.packed_weights.PACKED_FORMATS`, to which
            matrices are rounded; None keeps their numbers.

    Attributes:
        rounded_to: the same.
        kv_dtype: data type of the keys and values: bfloat16 where products round their rows, so that they
            take half the memory and traffic.
    """

    exact_rows = True
    kernels: ClassVar[dict[tuple[int, int], str]] = {}

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        turns: Tensor,
        run: ctypes.CDLL,
        rounded_to: str | None = None,
    ) -> None:
        self.bind_library(config, turns, run, PackedWeights(matrix_shapes(config), rounded_to))
        layers = [self._pack_decoder_layer(weights.layers, i) for i in range(config.layers)]
        self.build_model(weights.embedding, weights.norm, self._panels.linear(weights.head, None), layers)

    def _pack_decoder_layer(self, layers: Sequence[LayerWeights], i: int) -> LayerStruct:
        """Pack a layer. It may be read from its file here, and is freed before the next one is read."""
        layer = layers[i]
        return self.pack_layer(
            layer,
            sliding=self._config.sliding[i],
            input_norm=layer.input_norm,
            gate_up_bias=layer.gate_up_bias,
            down_bias=layer.down_bias,
        )

    def bind_library(
        self, config: DecoderConfig, turns: Tensor, run: ctypes.CDLL, panels: PackedWeights
    ) -> None:
        """Bind the library's functions and the memory for packed matrices. First step of construction."""
        self._config = config
        self._run = run.specclient_pass
        self._run.argtypes = [POINTER(PassStruct)]
        self._run.restype = None
        self._guess = run.specclient_draft_chains
        numbers = POINTER(c_int64)
        self._guess.argtypes = [POINTER(PassStruct), numbers, c_int64, c_int64, numbers, numbers]
        self._guess.restype = None
        self._panels = panels
        self.rounded_to = panels.rounded_to
        self._turns = self._panels.pointer(turns)

    def build_model(
        self,
        embedding: Tensor,
        norm: Tensor | None,
        head: LinearStruct,
        layers: Sequence[LayerStruct],
        *,
        fusion: FusionStruct | None = None,
        vocab_ids: Tensor | None = None,
    ) -> None:
        """Set up the ``ModelStruct`` of packed layers. Last step of construction."""
        c = self._config
        self._layers = (LayerStruct * len(layers))(*layers)
        self.kv_dtype = torch.bfloat16 if rounds_rows(layers[0].qkv) else torch.float32
        self._model = ModelStruct(
            c.hidden_size,
            c.heads,
            c.kv_heads,
            c.head_dim,
            layers[0].gate_up.outputs // 2,
            len(layers),
            c.norm_eps,
            self._panels.pointer(embedding),
            self._panels.maybe(norm),
            head,
            self._layers,
            None if fusion is None else ctypes.pointer(fusion),
            self._panels.maybe(vocab_ids),
        )
        self._make_room(_SMALLEST, 0)

    @property
    def head(self) -> LinearStruct:
        """The packed output head, which draft heads may share; valid as long as the passes exist."""
        found: LinearStruct = self._model.head
        return found

    def only(self, config: DecoderConfig, layers: Sequence[int]) -> NativePasses:
        """Return passes through some of the layers, which share the weights."""
        other = object.__new__(NativePasses)
        other._config, other._panels, other._turns = config, self._panels, self._turns
        other.rounded_to, other.kv_dtype = self.rounded_to, self.kv_dtype
        other._run, other._guess = self._run, self._guess
        other._layers = (LayerStruct * len(layers))(*(self._layers[i] for i in layers))
        other._model = ModelStruct.from_buffer_copy(self._model)
        other._model.layers, other._model.layer = len(layers), other._layers
        other._make_room(_SMALLEST, 0)
        return other

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Run one pass; see :meth:`specclient_local.model.decoder.TransformerDecoder.forward`."""
        logits = torch.empty(len(ids) if wanted is None else len(wanted), self.head.outputs)
        table = self.set_up_pass(ids, positions, spans, wanted, logits)
        if taps is not None:
            tapped = (c_int64 * len(taps.layers))(*taps.layers)
            table.taps, table.tapped, table.features = len(tapped), addressof(tapped), taps.rows.data_ptr()
        self._run(table)
        return logits

    def draft_chains(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        steps: Sequence[int],
        vocab: int,
    ) -> list[list[int]]:
        """Draft chains; see :meth:`specclient_local.model.decoder.TransformerDecoder.draft_chains`."""
        most, count = max(steps), len(spans)
        logits = torch.empty(count, self.head.outputs)
        wanted = [span.rows.stop - 1 for span in spans]
        first = self.set_up_pass(ids, positions, spans, wanted, logits, further=most)
        tokens, found = (c_int64 * (count * most))(), (c_int64 * count)()
        vocab = min(vocab, self.head.outputs)
        self._guess(first, (c_int64 * count)(*steps), most, vocab, tokens, found)
        return [tokens[i * most : i * most + found[i]] for i in range(count)]

    def set_up_pass(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        logits: Tensor,
        *,
        further: int = 0,
    ) -> PassStruct:
        """Set up the ``PassStruct`` of a pass; the memory to which it points is valid until the next one."""
        rows = len(ids)
        table = PassStruct()
        longest = max(span.mask.shape[1] for span in spans) + further
        table.rows, table.threads = (
            rows,
            self.room(rows, longest, MIN_PARALLEL_PRODUCTS_AWAKE if further > 1 else MIN_PARALLEL_PRODUCTS),
        )
        self.fill(table)
        numbers = (c_int64 * (2 * rows + len(wanted or ())))(*ids, *positions, *(wanted or ()))
        where = addressof(numbers)
        span_structs = (SpanStruct * len(spans))(*(self._span(span) for span in spans))
        self._pass_memory = (numbers, span_structs, [span.cache for span in spans])
        table.spans, table.span = len(spans), addressof(span_structs)
        table.wanted = rows if wanted is None else len(wanted)
        first = spans[0].cache
        assert isinstance(first, SlotRows)  # only such caches have compiled passes
        table.capacity, table.is_bfloat16 = first[0].shape[1], first[0].dtype == torch.bfloat16
        table.ids, table.positions = where, where + 8 * rows
        table.wanted_rows = None if wanted is None else where + 16 * rows
        table.logits = logits.data_ptr()
        return table

    def room(self, rows: int, longest: int, least: int = MIN_PARALLEL_PRODUCTS) -> int:
        """Ensure scratch memory for a pass, and return the number of threads to use.

        Args:
            rows: number of rows.
            longest: maximum number of visible positions, in this pass and those that follow in the same call.
            least: minimum products for which several threads are used.
        """
        threads = torch.get_num_threads() if rows * self._products >= least else 1
        longest += -longest % _WHOLE  # scores are stored as whole vectors
        if rows > self._rows or threads * longest > self._reach:
            self._make_room(rows, threads * longest)
        return threads

    def fill(self, table: PassStruct) -> None:
        """Set the fields that are equal for all passes as long as ``scratch`` does not change."""
        table.model, table.turns = self._shape, self._turns
        table.x, table.h, table.qkv, table.attended, table.gated, table.scores, table.converted = self.scratch

    def _make_room(self, rows: int, reach: int) -> None:
        """Allocate scratch memory for ``rows`` rows, and for ``reach`` positions of all threads together."""
        c = self._config
        self._products = c.parameters
        self._rows = 1 << (rows - 1).bit_length()
        self._reach = 1 << max(reach - 1, 0).bit_length()
        heads = (c.heads + 2 * c.kv_heads) * c.head_dim
        read = c.hidden_size * (2 if self._model.fusion else 1)
        widths = (c.hidden_size, read, heads, c.heads * c.head_dim, self._model.ff)
        self._buffers = [torch.empty(self._rows * width) for width in widths]
        self._buffers.append(torch.empty(_QUERIES * self._reach))
        self._buffers.append(scratch_for_rows(self._linears(), self._rows))
        self.scratch = [buffer.data_ptr() for buffer in self._buffers]
        self._shape = ctypes.pointer(self._model)

    def _linears(self) -> Iterator[LinearStruct]:
        """Yield the packed matrices of all layers, the fusion and the head."""
        yield self._model.head
        if self._model.fusion:
            yield self._model.fusion.contents.fc
        for i in range(self._model.layers):
            layer = self._model.layer[i]
            yield from (layer.qkv, layer.o, layer.gate_up, layer.down)

    def _span(self, span: PassSpan) -> SpanStruct:
        window = span.window_mask
        assert isinstance(span.cache, SlotRows)
        return SpanStruct(
            span.rows.start,
            span.count,
            span.start,
            span.open,
            span.mask.shape[1],
            span.mask.stride(0),
            0 if window is None else window.stride(0),
            span.mask.data_ptr(),
            None if window is None else window.data_ptr(),
            addressof(span.cache.addresses),
            span.causal,
        )

    def pack_layer(
        self,
        w: LayerWeights | EagleWeights,
        *,
        sliding: bool = False,
        input_norm: Tensor | None = None,
        gate_up_bias: Tensor | None = None,
        down_bias: Tensor | None = None,
    ) -> LayerStruct:
        """Pack a layer's matrices."""
        panels = self._panels  # packed in the order in which a pass reads them
        qkv, o = panels.linear(w.qkv, w.qkv_bias), panels.linear(w.o, w.o_bias)
        gate_up = panels.linear(w.gate_up, gate_up_bias, arranged=interleave_gates)
        down = panels.linear(w.down, down_bias, inputs=gate_up.outputs // 2)
        norms = panels.maybe(input_norm), panels.pointer(w.post_norm), panels.maybe(w.qk_norm)
        return LayerStruct(*norms, qkv, o, gate_up, down, sliding)


def native_passes(
    config: DecoderConfig, weights: DecoderWeights, turns: Tensor, rounded_to: str | None = None
) -> NativePasses | None:
    """Return compiled passes for a model, or None if it is not float32 on the CPU or nothing compiles.

    Its matrices may be in bfloat16, or quantised to int8.
    """
    run = library()
    if run is None or weights.embedding.dtype != torch.float32 or not _can_all_be_packed(weights):
        return None
    return NativePasses(config, weights, turns, run, rounded_to)


def _can_all_be_packed(weights: DecoderWeights) -> bool:
    """Return whether all matrices can be packed; those of all layers have one type."""
    matrices = [weights.embedding, weights.head]
    if weights.layers:
        first = weights.layers[0]
        matrices += first.qkv, first.o, first.gate_up, first.down
    return all(map(can_be_packed, matrices))
