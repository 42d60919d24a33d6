"""Random model pairs of a given shape with a chosen acceptance rate.

The draft is the target's lower layers, with the same embedding and head. The outputs of the target's upper
layers are scaled down: the smaller the scale, the more similar the two models, so any acceptance rate can be
set. Computation and memory traffic of the target are those of the full shape. The draft shares the target's
weights and needs no memory of its own.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import torch
from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import max_shared_rows
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.quantization import quantize_weight
from specclient_local.model.rope_config import Rope
from specclient_local.model.weights import DecoderWeights, LayerWeights
from torch import Tensor

LLAMA_8B = DecoderConfig(
    model_type="llama",
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    norm_eps=1e-5,
    context=8192,
    window=None,
    sliding=(False,) * 32,
    rope=Rope(theta=500_000.0),
    tied=False,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    qk_norm=False,
    eos=(),
    bos=None,
)
"""The shape of Llama 3 8B."""

TINY = dataclasses.replace(
    LLAMA_8B,
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=8,
    sliding=(False,) * 4,
)
"""A small shape to test the benchmark on the CPU."""

_UPPER = ("o", "down")
"""The matrices of a layer whose outputs are added to the residual stream."""


def random_weights(config: DecoderConfig, dtype: torch.dtype, device: str, seed: int = 0) -> DecoderWeights:
    """Return random weights on the device, scaled so that the residual stream keeps its size."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        drawn = torch.empty(rows, columns, dtype=dtype, device=device)
        return drawn.normal_(std=columns**-0.5, generator=generator)

    def layer() -> LayerWeights:
        heads = (config.heads + 2 * config.kv_heads) * config.head_dim
        ones = torch.ones(config.hidden_size, dtype=dtype, device=device)
        return LayerWeights(
            input_norm=ones,
            qkv=matrix(heads, config.hidden_size),
            qkv_bias=None,
            qk_norm=None,
            o=matrix(config.hidden_size, config.heads * config.head_dim),
            o_bias=None,
            post_norm=ones.clone(),
            gate_up=matrix(2 * config.intermediate_size, config.hidden_size),
            gate_up_bias=None,
            down=matrix(config.hidden_size, config.intermediate_size),
            down_bias=None,
        )

    vocab = config.vocab_size
    return DecoderWeights(
        embedding=matrix(vocab, config.hidden_size).mul_(config.hidden_size**0.5),
        layers=[layer() for _ in range(config.layers)],
        norm=torch.ones(config.hidden_size, dtype=dtype, device=device),
        # Large enough that a few tokens have most of the probability, as in a trained model.
        head=matrix(vocab, config.hidden_size).mul_(math.log(vocab) / 2),
    )


def size_in_bytes(weights: DecoderWeights) -> int:
    """Return the bytes of the matrices that a pass reads completely: all except the embedding."""
    matrices = [m for w in weights.layers for m in (w.qkv, w.o, w.gate_up, w.down)]
    return sum(_bytes(matrix) for matrix in (*matrices, weights.head))


def _bytes(matrix: Tensor) -> int:
    """Return the bytes of a tensor; for a quantized one, those of its parts."""
    names = getattr(matrix, "__tensor_flatten__", None)
    if names is None:
        return matrix.numel() * matrix.element_size()
    return sum(_bytes(getattr(matrix, name)) for name in names()[0])


def requantized(weights: DecoderWeights, kind: str) -> DecoderWeights:
    """Return the weights with all projections and the head quantized."""
    layers = [
        dataclasses.replace(
            w, **{name: quantize_weight(getattr(w, name), kind) for name in ("qkv", "o", "gate_up", "down")}
        )
        for w in weights.layers
    ]
    return dataclasses.replace(weights, layers=layers, head=quantize_weight(weights.head, kind))


@torch.inference_mode()
def runner(
    config: DecoderConfig, weights: DecoderWeights, slots: int, context: int, *, pages: int | None = None
) -> StaticRunner:
    """Return a runner of a model with these weights, with a cache of so many pages if that is given."""
    passes = None if pages is None else partial(EagerPasses, exact=True, most=max_shared_rows(slots))
    decoder = TransformerDecoder(config, weights, context, passes=passes)
    return StaticRunner(decoder, weights, slots, context, pages=pages)


class Pair:
    """A target, and the draft that consists of its lower layers.

    Args:
        config: the target's shape.
        weights: the target's weights; :meth:`scale_upper_layers` changes them in place.
        lower: number of layers of the draft.
        slots: concurrent requests.
        context: positions per request.
    """

    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, lower: int, *, slots: int, context: int
    ) -> None:
        self.weights, self.lower = weights, lower
        small = dataclasses.replace(config, layers=lower, sliding=config.sliding[:lower])
        below = dataclasses.replace(weights, layers=weights.layers[:lower])
        self.target = runner(config, weights, slots, context)
        self.draft = runner(small, below, slots, context)
        # Copies of the original matrices, so that repeated scaling does not accumulate errors.
        self._original = [{name: getattr(w, name).clone() for name in _UPPER} for w in weights.layers[lower:]]

    @torch.inference_mode()
    def scale_upper_layers(self, scale: float) -> None:
        """Scale the original outputs of the upper layers, by 0 to 1."""
        for layer, original in zip(self.weights.layers[self.lower :], self._original, strict=True):
            for name, matrix in original.items():
                torch.mul(matrix, scale, out=getattr(layer, name))


class Peer:
    """The same pair in transformers' plain and assisted generation, with batch size 1.

    Args:
        config: the target's shape.
        weights: the target's weights; the models share them, including the scale of the upper layers.
        lower: number of layers of the draft.
    """

    def __init__(self, config: DecoderConfig, weights: DecoderWeights, lower: int) -> None:
        from peers import quiet  # noqa: PLC0415 - slow to import
        from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

        quiet()
        self._dtype, self._device = weights.embedding.dtype, weights.embedding.device

        def model(layers: int) -> Any:
            shape = LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.context,
                rms_norm_eps=config.norm_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
                tie_word_embeddings=False,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            )
            with torch.device("meta"):
                empty = LlamaForCausalLM(shape)
            state = dict(_named(config, weights, layers))
            empty.load_state_dict(state, assign=True, strict=True)
            # The rotary frequencies are not in the state, so they are still on the meta device.
            with self._device:
                empty.model.rotary_emb = type(empty.model.rotary_emb)(shape)
            empty.generation_config.eos_token_id = None
            return empty.eval()

        self.target, self.draft = model(config.layers), model(lower)

    def generate(self, prompt: list[int], new: int, length: int) -> int:
        """Sample ``new`` tokens, ``length`` drafted per round (0: plain decoding); return their number."""
        inputs = torch.tensor([prompt], device=self._device)
        options: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0}
        if length:
            config = self.draft.generation_config
            config.num_assistant_tokens = length
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
            options["assistant_model"] = self.draft
        answer = self.target.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=new,
            min_new_tokens=new,
            pad_token_id=0,
            **options,
        )
        return int(answer.shape[1]) - len(prompt)


def _named(config: DecoderConfig, weights: DecoderWeights, layers: int) -> list[tuple[str, Tensor]]:
    """Return the weights of the lower layers with transformers' names and order of rows."""
    sizes = [heads * config.head_dim for heads in (config.heads, config.kv_heads, config.kv_heads)]
    named = [
        ("model.embed_tokens.weight", weights.embedding),
        ("model.norm.weight", weights.norm),
        ("lm_head.weight", weights.head),
    ]
    for i, w in enumerate(weights.layers[:layers]):
        q, k, v = w.qkv.split(sizes)
        gate, up = w.gate_up.chunk(2)
        at = f"model.layers.{i}."
        named += [
            (at + "input_layernorm.weight", w.input_norm),
            (at + "post_attention_layernorm.weight", w.post_norm),
            (at + "self_attn.q_proj.weight", _halves(q, config.head_dim)),
            (at + "self_attn.k_proj.weight", _halves(k, config.head_dim)),
            (at + "self_attn.v_proj.weight", v),
            (at + "self_attn.o_proj.weight", w.o),
            (at + "mlp.gate_proj.weight", gate),
            (at + "mlp.up_proj.weight", up),
            (at + "mlp.down_proj.weight", w.down),
        ]
    return named


def _halves(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows from adjacent rotary pairs to the first elements, then the second elements."""
    return rows.view(-1, head_dim // 2, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
