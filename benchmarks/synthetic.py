"""Random model pairs of a given shape with a chosen acceptance rate.

The draft is the target's lower layers, with the same embedding and head. The outputs of the target's upper
layers are scaled down: the smaller the scale, the more similar the two models, so any acceptance rate can be
set. Computation and memory traffic of the target are those of the full shape. The draft shares the target's
weights and needs no memory of its own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from specclient_local.model.config import DecoderConfig, Rope
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.quantization import quantize_weight
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
"""A shape to try the benchmark with, where there is no accelerator."""

_UPPER = ("o", "down")
"""What of a layer adds to the residual stream."""


def random_weights(config: DecoderConfig, dtype: torch.dtype, device: str, seed: int = 0) -> DecoderWeights:
    """Draw a model's weights on the device, with a spread that keeps the residual stream of one size."""
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
        # Wide enough that a few tokens have most of the probability, as those of a trained model do.
        head=matrix(vocab, config.hidden_size).mul_(math.log(vocab) / 2),
    )


def size_in_bytes(weights: DecoderWeights) -> int:
    """Return what one pass of one row reads: every matrix but the embedding, of which it reads a row."""
    matrices = [m for w in weights.layers for m in (w.qkv, w.o, w.gate_up, w.down)]
    return sum(_bytes(matrix) for matrix in (*matrices, weights.head))


def _bytes(matrix: Tensor) -> int:
    """Count the bytes of a tensor, of one held in fewer bits those of its parts."""
    names = getattr(matrix, "__tensor_flatten__", None)
    if names is None:
        return matrix.numel() * matrix.element_size()
    return sum(_bytes(getattr(matrix, name)) for name in names()[0])


def requantized(weights: DecoderWeights, kind: str) -> DecoderWeights:
    """Return the weights with every projection and the head held in fewer bits."""
    layers = [
        dataclasses.replace(
            w, **{name: quantize_weight(getattr(w, name), kind) for name in ("qkv", "o", "gate_up", "down")}
        )
        for w in weights.layers
    ]
    return dataclasses.replace(weights, layers=layers, head=quantize_weight(weights.head, kind))


@torch.inference_mode()
def runner(config: DecoderConfig, weights: DecoderWeights, slots: int, context: int) -> StaticRunner:
    """Put weights behind a runner."""
    return StaticRunner(TransformerDecoder(config, weights, context), weights, slots, context)


class Pair:
    """A target and the draft made of its lower layers.

    Args:
        config: the target's shape.
        weights: the target's; :meth:`share` changes them in place.
        lower: layers of the draft.
        slots: requests at once.
        context: positions of each.
    """

    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, lower: int, *, slots: int, context: int
    ) -> None:
        self.weights, self.lower = weights, lower
        small = dataclasses.replace(config, layers=lower, sliding=config.sliding[:lower])
        below = dataclasses.replace(weights, layers=weights.layers[:lower])
        self.target = runner(config, weights, slots, context)
        self.draft = runner(small, below, slots, context)
        # Upper layers are kept as drawn, so that scaling them again and again loses nothing.
        self._drawn = [{name: getattr(w, name).clone() for name in _UPPER} for w in weights.layers[lower:]]

    @torch.inference_mode()
    def share(self, scale: float) -> None:
        """Let the upper layers add this share of what they were drawn to add."""
        for layer, drawn in zip(self.weights.layers[self.lower :], self._drawn, strict=True):
            for name, matrix in drawn.items():
                torch.mul(matrix, scale, out=getattr(layer, name))


class Peer:
    """The same pair as ``transformers`` runs it: its own plain and assisted generation, batch 1.

    Args:
        config: the target's shape.
        weights: of the pair, upper layers as scaled.
        lower: layers of the draft.
    """

    def __init__(self, config: DecoderConfig, weights: DecoderWeights, lower: int) -> None:
        from peers import quiet  # noqa: PLC0415 - slow to import, as what it is about
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
            # What is no weight, the rotation's frequencies, was made on no device either.
            with self._device:
                empty.model.rotary_emb = type(empty.model.rotary_emb)(shape)
            empty.generation_config.eos_token_id = None
            return empty.eval()

        self.target, self.draft = model(config.layers), model(lower)

    def generate(self, prompt: list[int], new: int, length: int) -> int:
        """Sample an answer of ``new`` tokens with ``length`` guesses a round, 0 for none; return its size."""
        given = torch.tensor([prompt], device=self._device)
        options: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0}
        if length:
            config = self.draft.generation_config
            config.num_assistant_tokens = length
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
            options["assistant_model"] = self.draft
        answer = self.target.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=new,
            min_new_tokens=new,
            pad_token_id=0,
            **options,
        )
        return int(answer.shape[1]) - len(prompt)


def _named(config: DecoderConfig, weights: DecoderWeights, layers: int) -> list[tuple[str, Tensor]]:
    """Return the lower layers' weights by the names, and in the order of rows, that transformers uses."""
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
    """Reorder each head's rows from the pairs that a rotation turns to (first halves, second halves)."""
    return rows.view(-1, head_dim // 2, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
