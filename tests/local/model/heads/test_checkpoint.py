"""Checkpoints of heads: published formats against reference computations, errors, and writing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny_heads
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from specclient_local.drafting.parallel_eagle import ParallelEagleDrafter
from specclient_local.loading import engine_loader
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import read_heads, required_hidden_layers
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.heads.writer import write_eagle, write_medusa
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.rope_config import Rope
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, sequence, write_checkpoint
from torch.nn import functional as F

from specclient.errors import CheckpointError, ConfigurationError

TOKENS = [5, 17, 120, 33, 80, 201, 9]
NEXT = 44
EPS = 1e-5


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("target"), spread=0.2, **tiny_heads.TARGET)


def hidden_states(target, tokens):
    """Return transformers' hidden states after each number of layers, the last one normalised."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [
            states[0] for states in model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        ]


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rotated(x, positions):
    """Rotate ``[N, heads, D]`` the way transformers does: halves, not pairs."""
    dim = x.shape[-1]
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    cos, sin = (f(torch.cat((angles, angles), -1))[:, None] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1) * sin


def layer_by_hand(w, prefix, h, x):
    """Compute a decoder layer as in the papers, with attention input ``h`` and residual ``x``."""
    n, heads, kv, dim = len(h), 4, 2, x.shape[1] // 4
    q, k, v = (F.linear(h, w[f"{prefix}self_attn.{name}_proj.weight"]).view(n, -1, dim) for name in "qkv")
    at = torch.arange(n).float()
    q, k = rotated(q, at), rotated(k, at)
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) / dim**0.5
    scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    out = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).reshape(n, -1)
    x = x + F.linear(out, w[f"{prefix}self_attn.o_proj.weight"])
    h = norm(x, w[f"{prefix}post_attention_layernorm.weight"])
    gate, up = (F.linear(h, w[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
    return x + F.linear(F.silu(gate) * up, w[f"{prefix}mlp.down_proj.weight"])


def eagle_by_hand(target, w, prefix="layers.0.", fc="fc."):
    """Yield EAGLE-1's logits after the tokens, and after one drafted token."""
    base = load_file(target / "model.safetensors")
    embedding, head = base["model.embed_tokens.weight"], base["lm_head.weight"]
    states, ids = hidden_states(target, TOKENS)[-1][:-1], TOKENS[1:]
    for _ in range(2):
        h = F.linear(torch.cat((embedding[ids], states), -1), w[f"{fc}weight"], w.get(f"{fc}bias"))
        out = layer_by_hand(w, prefix, h, h)
        yield F.linear(out[-1], head)
        states, ids = torch.cat((states, out[-1:])), [*ids, NEXT]


def eagle3_by_hand(target, w, flags, prefix):
    """Yield EAGLE-3's logits over the target's vocabulary, as :func:`eagle_by_hand` does."""
    base = load_file(target / "model.safetensors")
    embedding = w.get("embed_tokens.weight", base["model.embed_tokens.weight"])
    seen = [states[:-1] for states in hidden_states(target, TOKENS)]
    fused = [seen[k] for k in (2, 2, 1)]  # of four layers: 2, 4 // 2 and 4 - 3
    if flags.get("fc_norm"):
        fused = [norm(x, w[f"fc_norm.{i}.weight"]) for i, x in enumerate(fused)]
    fused = torch.cat(fused, -1)
    if flags.get("norm_before_fc"):
        fused = norm(fused, w["input_norm.weight"])
    states, ids = F.linear(fused, w["fc.weight"]), TOKENS[1:]
    for _ in range(2):
        normed = norm(states, w[f"{prefix}hidden_norm.weight"])
        h = torch.cat((norm(embedding[ids], w[f"{prefix}input_layernorm.weight"]), normed), -1)
        out = layer_by_hand(w, prefix, h, normed if flags.get("norm_before_residual") else states)
        last = norm(out[-1], w["norm.weight"])
        wide = torch.full((tiny_heads.VOCAB,), -torch.inf)
        wide[w["t2d"]] = F.linear(last, w["lm_head.weight"])
        yield wide
        states = torch.cat((states, last[None] if flags.get("norm_output") else out[-1:]))
        ids = [*ids, NEXT]


@torch.inference_mode()
def eagle_by_engine(target, folder):
    """Yield the same logits, computed by the engine's runner."""
    config = read_config(target)
    runner = load_model(
        target,
        ModelPlacement(),
        slots=1,
        context=64,
        taps=tuple(sorted(set(required_hidden_layers(folder, config)))),
    )
    found = read_heads(folder, config)
    eagle = EagleRunner(found.shape, found.weights, runner)
    runner.prefill(0, TOKENS[:-1])
    layers = found.shape.tapped(config.layers)
    states = eagle.head.read(runner.features(0, 0, len(TOKENS) - 1, layers))
    eagle.extend(0, TOKENS[1:-1], states[:-1])
    tree = TokenTree.chain([NEXT])
    (first,), (hidden,) = eagle.step([SlotInput(0, TOKENS[-1:])], [states[-1:]])
    (second,), _ = eagle.step([SlotInput(0, [], tree)], [hidden])
    for logits in (first, second):
        wide = torch.full((tiny_heads.VOCAB,), -torch.inf)
        if found.weights.ids is None:
            wide = logits[0]
        else:
            wide[found.weights.ids] = logits[0]
        yield wide


def check_same(one, other):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_eagle_checkpoints_in_the_format_of_their_repository(target, tmp_path, bias):
    folder = tiny_heads.eagle(tmp_path, bias=bias)
    weights = load_file(folder / "model.safetensors")
    check_same(eagle_by_hand(target, weights), eagle_by_engine(target, folder))


def test_eagle_checkpoints_in_the_format_of_speculators(target, tmp_path):
    folder = tiny_heads.speculators_eagle(tmp_path)
    weights = load_file(folder / "model.safetensors")
    check_same(eagle_by_hand(target, weights, "transformer.", "fusion_fc."), eagle_by_engine(target, folder))


def test_eagle3_checkpoints_in_the_format_of_their_repository(target, tmp_path):
    folder = tiny_heads.eagle3(tmp_path)
    weights = load_file(folder / "model.safetensors")
    check_same(eagle3_by_hand(target, weights, {}, "midlayer."), eagle_by_engine(target, folder))


def peagle_by_hand(target, w, prefix, layers, depth=4):
    """Return P-EAGLE's logits ``[depth, V]`` for the tokens of a block."""
    base = load_file(target / "model.safetensors")
    embedding = w.get("embed_tokens.weight", base["model.embed_tokens.weight"])
    seen = [states[:-1] for states in hidden_states(target, TOKENS)]
    fused = torch.cat([seen[k] for k in (2, 2, 1)], -1)
    fused = torch.cat((fused, w["mask_hidden"].view(1, -1).expand(depth - 1, -1)))
    states, ids = F.linear(fused, w["fc.weight"]), [*TOKENS[1:], *[0] * (depth - 1)]
    tokens = norm(embedding[ids], w[f"{prefix}input_layernorm.weight"])
    x = layer_by_hand(
        w, prefix, torch.cat((tokens, norm(states, w[f"{prefix}hidden_norm.weight"])), -1), states
    )
    for i in range(1, layers):
        x = layer_by_hand(w, f"layers.{i}.", norm(x, w[f"layers.{i}.input_layernorm.weight"]), x)
    wide = torch.full((depth, tiny_heads.VOCAB), -torch.inf)
    wide[:, w["t2d"]] = F.linear(norm(x[-depth:], w["norm.weight"]), w["lm_head.weight"])
    return wide


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("authors", "layers"), [(False, 2), (True, 4), (True, 1)])
def test_peagle_checkpoints_in_both_formats(target, tmp_path, authors, layers, compiled):
    folder = tiny_heads.peagle(tmp_path, authors=authors, layers=layers)
    config = read_config(target)
    taps = tuple(sorted({*required_hidden_layers(folder, config)}))
    runner = load_model(target, ModelPlacement(), slots=1, context=64, taps=taps)
    found = read_heads(folder, config)
    assert (found.method, found.shape.mask_token, found.shape.config.layers) == ("peagle", 0, layers)
    assert found.shape.block == (0 if authors else 3)
    head = EagleRunner(found.shape, found.weights, runner, compiled=compiled)
    drafter = ParallelEagleDrafter(runner, head)
    runner.prefill(0, TOKENS[:-1])
    with torch.inference_mode():
        (rows,) = drafter._rows([sequence(TOKENS)], [4])
        wide = drafter._widened(rows)
    wanted = peagle_by_hand(
        target, load_file(folder / "model.safetensors"), "midlayer." if authors else "layers.0.", layers
    )
    torch.testing.assert_close(wide, wanted, atol=2e-4, rtol=1e-4)
    assert head.length(0) == len(TOKENS) - 1, "rows of tokens that were not drafted are forgotten"


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"norm_before_residual": True},
        {"norm_output": True, "fc_norm": True},
        {"norm_before_fc": True},
        {"own_width": 16},
    ],
    ids=str,
)
def test_eagle3_checkpoints_in_the_format_of_speculators(target, tmp_path, flags):
    folder = tiny_heads.speculators_eagle3(tmp_path, **flags)
    weights = load_file(folder / "model.safetensors")
    check_same(eagle3_by_hand(target, weights, flags, "layers.0."), eagle_by_engine(target, folder))


def test_defaults_omitted_from_a_speculators_config_are_filled_in(target, tmp_path):
    """``speculators`` omits settings of a layer that equal the defaults of its class."""
    folder = tiny_heads.speculators_eagle3(tmp_path)
    whole = read_heads(folder, read_config(target)).shape
    raw = json.loads((folder / "config.json").read_text())
    for name in ("hidden_act", "max_position_embeddings", "num_hidden_layers", "rms_norm_eps"):
        raw["transformer_layer_config"].pop(name)
    raw["transformer_layer_config"]["num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(raw))
    found = read_heads(folder, read_config(target)).shape
    assert found.config.norm_eps == 1e-6
    assert found.config.context == 2048
    same = replace(found.config, norm_eps=1e-5, context=128, rope=whole.config.rope)
    assert same == whole.config


@pytest.mark.parametrize(("blocks", "own_heads"), [(1, True), (2, False)])
def test_medusa_checkpoints_in_the_format_of_their_trainer(target, tmp_path, blocks, own_heads):
    folder = tiny_heads.medusa(tmp_path, blocks=blocks, own_heads=own_heads)
    w = load_file(folder / "medusa_lm_head.safetensors")
    runner = load_model(target, ModelPlacement(), slots=1, context=64, taps=(4,))
    found = read_heads(folder, read_config(target))
    assert (found.shape.heads, found.shape.blocks, found.method) == (3, blocks, "medusa")
    heads = MedusaHeads(found.shape, found.weights, runner.shared_weights())
    runner.prefill(0, TOKENS)
    with torch.inference_mode():
        rows = heads.logits(heads.read(runner.features(0, 6, 7, (4,))), 2)
    assert rows.shape == (1, 2, tiny_heads.VOCAB)
    head = load_file(target / "model.safetensors")["lm_head.weight"]
    for i in range(2):
        x = hidden_states(target, TOKENS)[-1][-1]
        for j in range(blocks):
            x = x + F.silu(F.linear(x, w[f"{i}.{j}.linear.weight"], w[f"{i}.{j}.linear.bias"]))
        wanted = F.linear(x, w[f"{i}.{blocks}.weight"] if own_heads else head)
        torch.testing.assert_close(rows[0, i], wanted, atol=1e-4, rtol=1e-4)


def changed_config(folder, **changes):
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | changes))
    return folder


def changed_tensor(folder, name, tensor, file="model.safetensors"):
    tensors = load_file(folder / file)
    tensors[name] = tensor
    if tensor is None:
        del tensors[name]
    save_file(tensors, folder / file)
    return folder


Q = "midlayer.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (
            lambda f: changed_tensor(tiny_heads.eagle3(f), Q, torch.zeros(32, 32)),
            r"model\.safetensors: tensor midlayer\.self_attn\.q_proj\.weight has shape \[32, 32\].*\[32, 6",
        ),
        (
            lambda f: changed_tensor(tiny_heads.eagle3(f), "norm.weight", None),
            r"model\.safetensors: tensor norm\.weight of shape \[32\] is missing",
        ),
        (
            lambda f: changed_tensor(tiny_heads.eagle3(f), "norm.weight", torch.full((32,), torch.nan)),
            r"norm\.weight contains 32 non-finite numbers",
        ),
        (
            lambda f: changed_tensor(tiny_heads.eagle3(f), "d2t", torch.zeros(120).long() + 250),
            r"d2t does not map",
        ),
        (lambda f: changed_tensor(tiny_heads.eagle3(f), "d2t", torch.zeros(120)), r"d2t has type float32"),
        (
            lambda f: changed_tensor(
                tiny_heads.medusa(f), "1.1.weight", torch.zeros(9, 32), tiny_heads.MEDUSA
            ),
            r"medusa_lm_head\.safetensors: tensor 1\.1\.weight has shape \[9, 32\].*\[300, 32\]",
        ),
        (
            lambda f: tiny_heads.eagle(f, hidden=16, heads=2, kv=1),
            r"config\.json: the head belongs to a target with hidden size 16, but this target's is 32",
        ),
        (lambda f: tiny_heads.eagle3(f, vocab=299), r"vocabulary 299, but this target's is 300"),
        (
            lambda f: changed_config(tiny_heads.speculators_eagle3(f), speculators_model_type="dflash"),
            r"speculators_model_type is 'dflash'; supported are eagle, eagle3, peagle",
        ),
        (
            lambda f: changed_config(tiny_heads.speculators_eagle(f), layernorms=True),
            r"layernorms is True; supported is false",
        ),
        (
            lambda f: tiny_heads.speculators_eagle3(f, eagle_aux_hidden_state_layer_ids=[1, 2, 7]),
            r"eagle_aux_hidden_state_layer_ids has 7, but the target has 4 layers",
        ),
        (lambda f: changed_config(tiny_heads.eagle(f), num_hidden_layers=2), r"num_hidden_layers is 2"),
        (
            lambda f: tiny_heads.peagle(f, layers=17),
            r"num_hidden_layers is 17; P-EAGLE heads of 1 to 16 layers",
        ),
        (lambda f: tiny_heads.peagle(f, mask_token_id=None), r"mask_token_id is missing"),
        (lambda f: tiny_heads.peagle(f, mask_token_id=300), r"mask_token_id is 300; .* from 0 to 299"),
        (lambda f: tiny_heads.peagle(f, authors=True, ptd_token_id=-1), r"ptd_token_id is -1"),
        (
            lambda f: changed_tensor(tiny_heads.peagle(f), "mask_hidden", None),
            r"tensor mask_hidden is missing",
        ),
        (
            lambda f: changed_tensor(tiny_heads.peagle(f), "mask_hidden", torch.zeros(2, 48)),
            r"mask_hidden has shape \[2, 48\], .* require \[96\]",
        ),
        (
            lambda f: changed_tensor(tiny_heads.peagle(f), "layers.1.input_layernorm.weight", None),
            r"tensor layers\.1\.input_layernorm\.weight of shape \[32\] is missing",
        ),
        (lambda f: changed_config(tiny_heads.eagle(f), mlp_bias=True), r"mlp_bias is true"),
        (
            lambda f: changed_config(tiny_heads.eagle(f), model_type=None),
            r"model_type of the head's layer is missing",
        ),
    ],
)
def test_invalid_heads_raise_with_the_reason(target, tmp_path, broken, named):
    with pytest.raises(CheckpointError, match=named):
        read_heads(broken(tmp_path), read_config(target))


@pytest.mark.parametrize("old", ["pytorch_model.bin", None])
def test_pickled_weights_are_rejected_with_how_to_convert_them(target, tmp_path, old):
    folder = tiny_heads.eagle(tmp_path)
    (folder / "model.safetensors").unlink()
    if old:
        (folder / old).write_bytes(b"")
    with pytest.raises(CheckpointError) as caught:
        load(target, heads=folder)
    message = str(caught.value)
    assert "only safetensors are loaded" in message
    assert "torch.load('pytorch_model.bin', weights_only=True)" in message
    assert ("Convert pytorch_model.bin in that folder" in message) == bool(old)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": "eagle"}, "heads is None"),
        ({"method": "medusa", "heads": "eagle"}, "choose one of plain, .*eagle"),
        ({"heads": ["eagle", "eagle"]}, "two folders of method 'eagle'"),
        ({"heads": "eagle", "runner": "hf"}, "transformers runs the target"),
    ],
)
def test_invalid_options_with_heads_are_rejected(target, tmp_path, options, named):
    folder = tiny_heads.eagle(tmp_path)
    if "heads" in options:
        given = options["heads"]
        options = options | {"heads": str(folder) if given == "eagle" else [str(folder)] * 2}
    with pytest.raises(ConfigurationError, match=named):
        load(target, **options)


def test_heads_of_both_methods_can_be_loaded_together(target, tmp_path):
    folders = [tiny_heads.medusa(tmp_path / "medusa"), tiny_heads.eagle3(tmp_path / "eagle3")]
    with load(target, heads=folders) as engine:
        assert engine.method == "eagle"
        assert {"medusa", "eagle"} <= set(engine.methods)
        assert len(engine.costs["medusa"].verify) == 4, "a tree has no more levels than there are heads"
        wanted = engine.generate("def f", max_tokens=12, method="plain").token_ids
        for method in ("medusa", "eagle"):
            answer = engine.generate("def f", max_tokens=12, method=method, draft_length=3)
            assert (answer.token_ids, answer.speculation.method) == (wanted, method)


def test_a_peagle_head_without_its_mask_is_refused_before_the_target_is_read(target, tmp_path, monkeypatch):
    folder = changed_tensor(tiny_heads.peagle(tmp_path), "mask_hidden", None)
    monkeypatch.setattr(engine_loader, "load_model", lambda *_, **__: pytest.fail("the target was read"))
    with pytest.raises(CheckpointError, match="tensor mask_hidden is missing"):
        load(target, heads=folder)


@pytest.mark.parametrize(
    "make",
    [tiny_heads.speculators_eagle, tiny_heads.speculators_eagle3, tiny_heads.peagle],
    ids=["1", "3", "p"],
)
def test_written_eagle_heads_equal_the_source(target, tmp_path, make):
    source = make(tmp_path / "source")
    found = read_heads(source, read_config(target))
    out = tmp_path / "out"
    write_eagle(out, found.shape, found.weights, "someone/target", guesses=3, dtype=torch.float32)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    one, other = (load_file(folder / "model.safetensors") for folder in (source, out))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
    given, written = (json.loads((folder / "config.json").read_text()) for folder in (source, out))
    assert written["speculators_model_type"] == given["speculators_model_type"]
    assert written["speculators_config"]["verifier"] == given["speculators_config"]["verifier"]
    (proposal,) = written["speculators_config"]["proposal_methods"]
    assert proposal["proposal_type"] == "greedy"
    assert proposal["speculative_tokens"] == 3
    assert isinstance(written["transformer_layer_config"], dict)
    with safe_open(out / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    read = read_heads(out, read_config(target)).shape
    assert read == found.shape
    assert read.config.rope == Rope(original_context=128)


@pytest.mark.parametrize("own_heads", [True, False])
def test_written_medusa_heads_equal_the_source(target, tmp_path, own_heads):
    source = tiny_heads.medusa(tmp_path / "source", own_heads=own_heads)
    found = read_heads(source, read_config(target))
    write_medusa(tmp_path / "out", found.shape, found.weights, "a/target", dtype=torch.float32)
    one, other = (load_file(tmp_path / name / tiny_heads.MEDUSA) for name in ("source", "out"))
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert read_heads(tmp_path / "out", read_config(target)).shape == found.shape
