"""Memory plans: planned bytes equal allocated bytes, and models that do not fit are rejected."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_heads
import torch
from safetensors.torch import load_file, save_file
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.free_memory import _cgroup_available, _system_available, free_memory
from specclient_local.loading.memory_plan import DeviceMemoryPlan, memory_plans
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.loading.model_memory import ModelMemory
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import required_hidden_layers
from specclient_local.model.native.build import library
from tiny_models import load

from specclient.errors import CheckpointError, ConfigurationError

GIB = 2**30
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llama(checkpoint):
    """Return the configuration of Llama 3.1 8B; weights are not needed."""
    tiny = read_config(checkpoint())
    return replace(
        tiny,
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        context=131072,
        sliding=(False,) * 32,
        tied=False,
    )


def test_llama_3_1_8b_has_its_published_size(llama):
    """Meta's model card: 8.03 billion parameters; 2 · 32 layers · 8 heads · 128 values per cached token."""
    model = ModelMemory("target", llama, "bfloat16", copies_head=False)
    assert model.weights == pytest.approx(8.03e9 * 2, rel=1e-3)
    assert model.kv_per_token == 128 * 1024
    assert replace(model, quantize="int8").weights == pytest.approx(8.03e9 + 128256 * 4096, rel=1e-3)
    assert replace(model, quantize="int4").weights < 5 * GIB


def test_the_required_decoder_is_that_of_the_target_only(checkpoint):
    """Transformers runs the draft, so the memory of its device is unknown."""
    draft = checkpoint(kind="stablelm")
    assert not memory_plans(
        checkpoint(), [draft], EngineOptions(runner="own", device="cpu"), 100, lambda device: None
    )
    with load(checkpoint(), draft, runner="own", device="cpu") as engine:
        assert "draft" in engine.costs
    with pytest.raises(CheckpointError, match="model_type 'stablelm'"):
        load(draft, runner="own", device="cpu")


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_parts_on_a_cpu_compute_in_the_type_that_was_asked_for(checkpoint, quantize):
    """Compiled passes widen bfloat16 on a CPU, but do not run parts of a model."""
    options = EngineOptions(dtype="bfloat16", device="cpu", quantize=quantize, tensor_parallel=2)
    parts = memory_plans(checkpoint(), [], options, 100, lambda device: None)["cpu"].models
    assert [(part.dtype, part.quantize) for part in parts] == [("bfloat16", quantize)] * 2


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_planned_bytes_equal_those_of_a_loaded_model(checkpoint, tied, dtype, quantize):
    folder = checkpoint(hidden_size=128, intermediate_size=512, tie_word_embeddings=tied, vocab_size=640)
    runner = load_model(folder, ModelPlacement(dtype, "cpu", quantize), slots=3, context=100)
    options = EngineOptions(dtype=dtype, device="cpu", slots=3, quantize=quantize)
    (model,) = memory_plans(folder, [], options, 100, lambda device: None)["cpu"].models
    assert model.caches(3, 100) == runner.cache.rows.nbytes
    assert model.tables(100) == runner.causal.nbytes + runner.decoder.turns(slice(None)).nbytes
    if runner.decoder.exact_rows:
        passes = runner.decoder.passes
        packed = passes._panels.memory[: passes._panels.used]
        tensors = [*passes._panels.held, packed, runner.decoder.embedding]
        held = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}
        assert model.weights == pytest.approx(sum(held.values()), rel=0.03)


_MEASURE = """
import sys
from pathlib import Path
from specclient_local.loading.model_loader import ModelPlacement, load_model

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

tiny, big, quantize = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] or None
load_model(tiny, ModelPlacement("bfloat16", "cpu", quantize), slots=1, context=64)  # imports and compiles
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
before = kib("VmRSS")
runner = load_model(big, ModelPlacement("bfloat16", "cpu", quantize), slots=2, context=256)
loaded, peak = kib("VmRSS"), kib("VmHWM")
for slot in (0, 1):
    runner.prefill(slot, [1] * 256)
print(loaded - before, peak - before, kib("VmRSS") - before)
"""


def large_checkpoint(tiny, folder):
    """Write a random checkpoint of 60 million parameters in bfloat16; return its folder."""
    shutil.copytree(tiny, folder)
    hidden, ff, layers, vocab = 512, 2048, 14, 4096
    own = {"hidden_size": hidden, "intermediate_size": ff, "num_hidden_layers": layers, "vocab_size": vocab}
    own |= {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True}
    config = json.loads((folder / "config.json").read_text()) | own | {"max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps(config))
    square, wide, vector = (hidden, hidden), (ff, hidden), (hidden,)
    shapes = {"input_layernorm": vector, "post_attention_layernorm": vector, "mlp.down_proj": wide[::-1]}
    shapes |= {f"self_attn.{name}_proj": square for name in "qkvo"}
    shapes |= {f"mlp.{name}_proj": wide for name in ("gate", "up")}
    tensors = {
        f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in shapes.items()
    }
    tensors |= {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": vector}
    drawn = torch.randn(wide, generator=torch.Generator().manual_seed(0)).bfloat16().flatten() * 0.02
    drawn = drawn.repeat(2)
    save_file(
        {name: drawn[: math.prod(shape)].view(shape).clone() for name, shape in tensors.items()},
        folder / "model.safetensors",
    )
    return folder


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the peak")
@pytest.mark.skipif(library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("quantize", [None, "int4"])
def test_planned_memory_is_what_the_system_counts(checkpoint, tmp_path, quantize):
    folder = large_checkpoint(checkpoint(), tmp_path / "large")
    options = EngineOptions(dtype="bfloat16", device="cpu", slots=2, quantize=quantize)
    plan = memory_plans(folder, [], options, 256, lambda device: None)["cpu"]
    command = [sys.executable, "-c", _MEASURE, str(checkpoint()), str(folder), quantize or ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded, peak, full = (int(word) * 1024 for word in done.stdout.split())
    assert loaded == pytest.approx(plan.weights + plan.models[0].tables(256), rel=0.1)
    assert full == pytest.approx(plan.resident + plan.models[0].passes / 2, rel=0.1)
    assert peak < 1.05 * plan.loading_peak
    assert peak < 1.25 * (plan.weights + plan.caches) or quantize


def test_the_plan_counts_logits_and_probabilities_of_recorded_rounds(llama):
    """64 slots with 10 drafted tokens: 704 rows of bfloat16 logits and three float32 distributions."""
    model = ModelMemory("target", llama, "bfloat16", copies_head=False)
    static = replace(model, static=True)
    assert model.rounds(64) == 0
    assert static.rounds(64) == 128256 * (64 * 16 * 2 + 704 * (2 + 3 * 4)) + (1 << 22) * 36
    assert static.rounds(128) == static.rounds(64), "a round has at most 64 slots"
    assert replace(static, dtype="float32").rounds(1) == 128256 * (16 * 4 + 11 * (4 + 3 * 8) + 11 * 48)
    plans = [DeviceMemoryPlan((m,), slots=64, context=4096, memory=80 * GIB) for m in (model, static)]
    assert plans[1].total - plans[0].total == static.rounds(64)
    assert plans[1].max_slots < plans[0].max_slots
    assert replace(plans[1], slots=plans[1].max_slots).fits
    assert not replace(plans[1], slots=plans[1].max_slots + 1).fits


def test_only_a_target_with_static_shapes_has_recorded_rounds(checkpoint):
    folder = checkpoint()
    for graphs, static in (("on", True), ("auto", False), ("off", False)):
        options = EngineOptions(device="cpu", graphs=graphs, draft=(str(folder),))
        models = memory_plans(folder, [folder], options, 100, lambda device: None)["cpu"].models
        assert [model.static for model in models] == [static, False]


def test_the_plan_computes_the_largest_context_and_slot_count(llama):
    model = ModelMemory("target", llama, "bfloat16", copies_head=False)
    draft = ModelMemory("draft", replace(llama, layers=2, sliding=(False,) * 2, context=8192), "bfloat16")
    plan = DeviceMemoryPlan((model, draft), slots=4, context=4096, memory=40 * GIB)
    assert plan.fits
    for slots, context in [(4, plan.max_context), (plan.max_slots, 4096)]:
        assert replace(plan, slots=slots, context=context).fits
    assert not replace(plan, context=plan.max_context + 64).fits
    assert not replace(plan, slots=plan.max_slots + 1).fits
    short, long = (replace(plan, context=context).caches for context in (8192, 16384))
    assert long - short == 4 * 8192 * model.kv_per_token, "the draft's cache ends at its own context"
    none = replace(plan, memory=10 * GIB)
    assert (none.max_context, none.max_slots, none.fits) == (0, 0, False)
    unknown = replace(plan, memory=None)
    assert (unknown.max_context, unknown.max_slots, unknown.fits) == (None, None, True)


def test_a_plan_of_pages_counts_the_tokens_that_fit(llama):
    """An 8B shape on 80 GiB: 64 requests share about the memory that 16 of the longest take without pages."""
    model = ModelMemory("target", llama, "bfloat16", copies_head=False, static=True)
    plan = DeviceMemoryPlan((replace(model, paged=True),), slots=64, context=32768, memory=80 * GIB)
    assert plan.fits
    assert plan.cache_tokens == plan.max_cache_tokens
    assert plan.cache_tokens % 64 == 0
    assert plan.caches == (plan.cache_tokens + 64 * 64) * 131072
    assert replace(plan, tokens=plan.cache_tokens).fits
    assert not replace(plan, tokens=plan.cache_tokens + 64).fits
    slots = DeviceMemoryPlan((model,), slots=64, context=32768, memory=80 * GIB)
    assert not slots.fits
    assert (plan.cache_tokens, slots.max_slots) == (514_240, 16)
    small = replace(plan, slots=2, context=1000)
    assert small.cache_tokens == 2 * 1024, "no more than the slots can use"
    assert replace(small, memory=None).cache_tokens == small.cache_tokens
    assert replace(small, tokens=64).cache_tokens == 1024, "at least one full slot"
    assert not replace(plan, memory=16 * GIB).fits


@pytest.mark.parametrize("tokens", [None, 512])
def test_planned_pages_are_those_of_a_loaded_model(checkpoint, tmp_path, tokens):
    folder = checkpoint(**tiny_heads.TARGET, max_position_embeddings=256)
    heads = tiny_heads.eagle3(tmp_path)
    options = {"slots": 3, "context": 200, "kv_cache": "paged", "cache_tokens": tokens, "device": "cpu"}
    read = EngineOptions.read({**options, "heads": [str(heads)]})
    (plan,) = memory_plans(folder, [], read, 200, lambda device: None, heads=[heads]).values()
    with load(folder, heads=heads, **options) as engine:
        cache = engine.speculator.target.cache
        assert cache.pool.pages == plan.cache_tokens // 64 == (12 if tokens is None else 8)
        target, states, eagle = plan.models
        assert target.pages(3, plan.cache_tokens) == cache.rows.nbytes
        assert states.pages(3, plan.cache_tokens) == engine.speculator.target._features.rows.nbytes
        assert plan.caches == cache.rows.nbytes + cache.companions[0].nbytes + eagle.caches(3, 200)


def test_a_plan_is_described_with_all_sizes(llama):
    plan = DeviceMemoryPlan(
        (ModelMemory("target", llama, "bfloat16", copies_head=False),), 64, 32768, 80 * GIB
    )
    described = plan.described("cuda:0")
    for part in (
        "the target's weights 15.0 GiB",
        "64 slots of 32768 positions take 256.0 GiB (131072 bytes per token)",
        "cuda:0 has 80.0 GiB free",
    ):
        assert part in described


def test_a_plan_of_pages_is_described_by_its_tokens(llama):
    target = ModelMemory("target", llama, "bfloat16", copies_head=False, paged=True)
    described = DeviceMemoryPlan((target,), 64, 32768, GIB // 2, tokens=65536).described("cuda:0")
    assert "keys and values of 65536 tokens in pages take " in described
    assert "cuda:0 has 512.0 MiB free" in described


def test_models_on_one_device_share_a_plan(checkpoint):
    folder, draft = checkpoint(), checkpoint(num_hidden_layers=1)
    options = EngineOptions(draft=(str(draft),), layer_skip=1, device="cpu", slots=2)
    both = memory_plans(folder, [draft], options, 64, lambda device: None)
    assert [model.name for model in both["cpu"].models] == ["target", "layers", "draft"]
    assert both["cpu"].weights == sum(ModelMemory("x", read_config(f)).weights for f in (folder, draft))


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3", "speculators_eagle3", "peagle"])
def test_planned_bytes_of_heads_equal_those_of_loaded_ones(checkpoint, tmp_path, kind):
    """The plan has the heads' matrices, their cache, and the hidden states stored for them."""
    folder = checkpoint(**tiny_heads.TARGET, max_position_embeddings=256)
    heads = getattr(tiny_heads, kind)(tmp_path, **({"own_width": 24} if kind.startswith("spec") else {}))
    plan = memory_plans(
        folder, [], EngineOptions(slots=3, device="cpu"), 100, lambda device: None, heads=[heads]
    )["cpu"]
    target, states, own = plan.models
    runner = load_model(
        folder,
        ModelPlacement(),
        slots=3,
        context=100,
        taps=tuple(sorted(set(required_hidden_layers(heads, target.config)))),
    )
    _, drafter = drafter_for_heads(runner, heads)
    assert (target.caches(3, 100), states.caches(3, 100)) == (
        runner.cache.rows.nbytes,
        runner._features.rows.nbytes,
    )
    unused = ("embed_tokens.weight",) if kind == "eagle" else ()
    tensors = load_file(next(heads.glob("*.safetensors")))
    numbers = [t.numel() for name, t in tensors.items() if t.dim() == 2 and name not in unused]
    assert own.weights == 4 * own.parameters == 4 * sum(numbers)
    if kind == "medusa":
        assert (own.caches(3, 100), own.tables(100)) == (0, 0)
    else:
        eagle = drafter.runner
        assert own.caches(3, 100) == eagle.cache.rows.nbytes
        assert own.tables(100) == eagle.causal.nbytes + eagle.context * own.config.head_dim * 4
    without = memory_plans(folder, [], EngineOptions(slots=3, device="cpu"), 100, lambda device: None)["cpu"]
    assert plan.total > without.total + own.weights + states.caches(3, 100)


def test_loading_a_model_that_does_not_fit_raises_with_the_free_memory(checkpoint, monkeypatch):
    monkeypatch.setattr("specclient_local.loading.engine_loader.free_memory", lambda device: 10 * 2**20)
    load(checkpoint(max_position_embeddings=2048)).close()
    with pytest.raises(ConfigurationError, match=r"cpu has 10\.0 MiB free. They fit with .* 1\d slots"):
        load(checkpoint(max_position_embeddings=2048), slots=64)


def test_free_memory_is_read_from_the_system_and_the_cgroup(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:      5 kB\n")
    assert _system_available(tmp_path / "meminfo") == 5 * 1024
    assert _system_available(tmp_path / "none") is None
    assert _cgroup_available(tmp_path) is None
    for name, text in (("max", "1000\n"), ("current", "700\n"), ("stat", "anon 1\nfile 200\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert _cgroup_available(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert _cgroup_available(tmp_path) is None
    assert free_memory(CPU) > 2**20


def test_the_parts_of_a_divided_target_are_counted_on_their_devices(checkpoint):
    folder = checkpoint()
    plans = [
        memory_plans(folder, [], EngineOptions(device="cpu", tensor_parallel=count), 100, lambda device: None)
        for count in (1, 2)
    ]
    (whole,), parts = plans[0]["cpu"].models, plans[1]["cpu"].models
    assert len(parts) == 2
    assert sum(part.kv_per_token for part in parts) == whole.kv_per_token
    assert whole.weights < sum(part.weights for part in parts) < 2 * whole.weights, "each has an embedding"
