"""Compiled passes: results equal torch's, rows are bit-identical in any batch, and torch is the fallback."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import sys
import tempfile
import threading
from types import SimpleNamespace

import forked_program
import pytest
import torch
from platformdirs import user_cache_path
from safetensors.torch import load_file, save_file
from specclient_local.api.backend import BUNDLED
from specclient_local.model.config import read_config
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.native import build as build
from specclient_local.model.native import packed_weights
from specclient_local.model.native import passes as passes
from specclient_local.model.native.argmax import native_argmax
from specclient_local.model.native.huge_pages import large_pages
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.weights import load_weights
from specclient_local.request.token_tree import TokenTree

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

X86 = platform.machine() in ("x86_64", "AMD64")
AVX512 = X86 and torch.backends.cpu.get_cpu_capability() == "AVX512"

SHAPES = {
    "no width is whole vectors": {
        "hidden_size": 36,
        "intermediate_size": 53,
        "vocab_size": 301,
        "head_dim": 6,
    },
    "whole vectors": {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 320, "head_dim": 64},
    "a last group that is not quite full": {"vocab_size": 316, "hidden_size": 64, "intermediate_size": 60},
    "biases": {"attention_bias": True, "mlp_bias": True, "hidden_size": 40},
    "norms of heads": {"kind": "qwen3", "head_dim": 20},
    "tied, one key head": {
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
        "hidden_size": 48,
        "num_attention_heads": 6,
    },
    "a window": {"kind": "mistral", "sliding_window": 9},
}


def ids(count, vocab=300):
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(2)).tolist()


def runner(folder, *, eager=False, slots=3, context=128):
    config = read_config(folder)
    weights = load_weights(folder, config)
    decoder = TransformerDecoder(config, weights, context)
    if eager:
        decoder.passes = EagerPasses(config, weights, decoder.turns(slice(None)), exact=True, most=16)
    assert decoder.exact_rows != eager
    return DecoderRunner(decoder, slots, context)


def branching():
    tree = TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (0, 10), (1, 9), (2, 11), (5, 12), (4, 13)]:
        tree.add(parent, token)
    return tree


@pytest.fixture
def threads():
    """Return a function that sets torch's thread count; it is restored afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_caches_equal_torchs(checkpoint, shape):
    folder = checkpoint(**SHAPES[shape])
    ours, theirs = runner(folder), runner(folder, eager=True)
    prompt = ids(30)
    for one in (ours, theirs):
        one.prefill(1, prompt[:-2])
    mine, want = (one.score(1, prompt[-2:], branching()) for one in (ours, theirs))
    torch.testing.assert_close(mine, want, atol=3e-4, rtol=0)
    rows = [one.cache.rows[:, 1, :, :38] for one in (ours, theirs)]
    torch.testing.assert_close(*rows, atol=1e-4, rtol=0)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_bit_identical_in_any_pass(checkpoint, shape, count, threads):
    """Rows scored alone, in prompts split anywhere, and with other requests, on any number of threads."""
    one, prompt = runner(checkpoint(**SHAPES[shape])), ids(41)
    threads(1)
    alone = torch.cat([one.score(0, [token]) for token in prompt])
    cache = one.cache.rows[:, 0, :, :41].clone()
    threads(count)
    for cut in (1, 5, 6, 7, 12, 17, 40):
        one.truncate(1, 0)
        one.truncate(2, 0)
        one.prefill(2, ids(20))
        parts = [SlotInput(2, [3], branching()), SlotInput(1, prompt[:cut], every=True)]
        first = one.score_all(parts)[1]
        assert torch.equal(torch.cat([first, one.read(1, prompt[cut:])]), alone)
        assert torch.equal(one.cache.rows[:, 1, :, :41], cache)


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_matrices_give_bit_identical_results_to_equal_float32_ones(checkpoint, shape, monkeypatch):
    """On processors that do not multiply bfloat16, where the rows of a product stay float32."""
    monkeypatch.setattr(packed_weights, "multiplies_bfloat16", lambda: False)
    folder, prompt = checkpoint(**SHAPES[shape]), ids(41)
    config = read_config(folder)
    half = load_weights(folder, config, "bfloat16").widened()
    full = load_weights(rounded(folder), config)
    assert half.layers[0].qkv.dtype == torch.bfloat16
    assert not torch.equal(full.head, load_weights(folder, config).head), (
        "rounding to bfloat16 changes the weights"
    )
    ours, theirs = (
        DecoderRunner(TransformerDecoder(config, weights, 128), 1, 128) for weights in (half, full)
    )
    assert ours.decoder.passes.head.kind != theirs.decoder.passes.head.kind
    for cut in (1, 5, 6, 7, 40):
        for one in (ours, theirs):
            one.truncate(0, 0)
        assert torch.equal(*(one.read(0, prompt[:cut]) for one in (ours, theirs)))
        assert torch.equal(*(one.score(0, prompt[cut:], branching()) for one in (ours, theirs)))
        assert torch.equal(ours.cache.rows, theirs.cache.rows)


def rounded(folder):
    """Return a copy of a checkpoint with weights rounded to bfloat16 but stored as float32."""
    other = folder.parent / f"{folder.name}-rounded"
    shutil.copytree(folder, other)
    tensors = load_file(other / "model.safetensors")
    save_file(
        {name: tensor.bfloat16().float() for name, tensor in tensors.items()}, other / "model.safetensors"
    )
    return other


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_nodes_row_is_bit_identical_to_its_path_scored_alone(checkpoint, shape):
    """Other nodes' rows may be between a node and its ancestors in the cache."""
    one, tree, prompt = runner(checkpoint(**SHAPES[shape])), branching(), ids(30)
    one.prefill(0, prompt[:-1])
    rows = one.score(0, prompt[-1:], tree)
    one.keep(0, len(prompt) - 1, [0, 2, 5, 6])
    for row, path in zip(rows, tree.paths(), strict=True):
        one.truncate(1, 0)
        assert torch.equal(row, one.read(1, [*prompt, *path])[-1])
    one.truncate(1, 0)
    one.read(1, [*prompt, *(tree.tokens[node] for node in [0, 2, 5, 6])])
    assert torch.equal(*(one.cache.rows[:, slot, :, :34] for slot in (0, 1)))


def test_a_subset_of_layers_can_be_run_as_a_model(checkpoint):
    folder = checkpoint(num_hidden_layers=3, seed=5)
    whole = runner(folder)
    config, eager = read_config(folder), runner(folder, eager=True)
    assert config.layers == 3
    for layers in ([0], [0, 2], [2, 1, 0]):
        some, same = (DecoderRunner(one.decoder.only(layers), 1, 64) for one in (whole, eager))
        assert some.config.layers == len(layers)
        mine, want = (one.score(0, ids(9), branching()) for one in (some, same))
        torch.testing.assert_close(mine, want, atol=3e-4, rtol=0)
    assert whole.config.layers == 3


def test_extreme_weights_give_torchs_finite_results(checkpoint):
    """The weights are so large that exponentials saturate."""
    folder = checkpoint(spread=30.0)
    mine, want = (one.score(0, ids(20), branching()) for one in (runner(folder), runner(folder, eager=True)))
    assert torch.isfinite(mine).all()
    torch.testing.assert_close(mine, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))


def test_two_python_threads_can_run_passes_concurrently(threads):
    """Each pass has separate helper threads."""
    threads(2)
    one, prompt = runner(BUNDLED / "draft", slots=1), ids(60)
    other = runner(BUNDLED / "draft", slots=1)
    want = one.read(0, prompt)
    wrong = []

    def work(mine):
        torch.set_num_threads(2)
        for _ in range(40):
            mine.truncate(0, 0)
            if not torch.equal(mine.read(0, prompt), want):
                wrong.append(mine)

    workers = [threading.Thread(target=work, args=(mine,)) for mine in (one, other)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert not wrong


def test_a_forked_child_starts_its_own_helper_threads(threads):
    threads(2)
    one, prompt = runner(BUNDLED / "draft", slots=1), ids(20)
    want = one.read(0, prompt)
    child = os.fork()
    if child == 0:
        one.truncate(0, 0)
        got = one.read(0, prompt)
        torch.set_num_threads(1)  # torch's helper threads do not exist in the child
        os._exit(0 if torch.equal(got, want) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return a function that builds with an empty cache folder; it gives the library and the cached files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    library = build.library.__wrapped__  # not the library that this process has loaded

    def build_with(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return library(), sorted(tmp_path.rglob("*"))

    return build_with


def test_only_the_compiled_library_is_cached(built, monkeypatch):
    library, kept = built()
    assert library.specclient_pass
    assert [path.suffix for path in kept if path.is_file()] == [".so", ".sha256"]
    assert kept[-1].parent.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(build, "_compile", None)
    assert built()[0] is not None


def writable_by_all(folder, monkeypatch):
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def in_the_way(folder, monkeypatch):
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_bytes(b"")


def mounted_without_programs(folder, monkeypatch):
    filesystem = SimpleNamespace(f_flag=getattr(os, "ST_NOEXEC", 8))
    monkeypatch.setattr(os, "ST_NOEXEC", filesystem.f_flag, raising=False)
    monkeypatch.setattr(os, "statvfs", lambda path: filesystem)


@pytest.mark.parametrize("unusable", [writable_by_all, in_the_way, mounted_without_programs])
def test_without_a_usable_cache_the_library_is_loaded_and_no_file_remains(
    built, tmp_path, monkeypatch, unusable
):
    """Home may be read-only, and a folder that others can write to may have their libraries."""
    monkeypatch.setattr(build, "_FLAGS", ("-O0", "-shared", "-fPIC", "-pthread"))
    unusable(user_cache_path("specclient", appauthor=False) / "native", monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library, left = built()
    assert library.specclient_pass
    assert not [path for path in left if path.suffix == ".so"]
    assert not list(tmp_path.glob("specclient-native-*"))


@pytest.mark.parametrize(
    ("environment", "log_text"),
    [
        ({"PATH": "/nowhere", "CC": ""}, "no C compiler"),
        ({"CC": "false"}, "could not be compiled, so torch is used"),
        ({"SPECCLIENT_NATIVE": "off"}, ""),
    ],
)
def test_torch_is_used_without_a_compiler(built, checkpoint, monkeypatch, caplog, environment, log_text):
    folder = checkpoint()
    caplog.set_level("INFO", "specclient")
    library, kept = built(**environment)
    assert library is None
    assert log_text in caplog.text
    assert bool(log_text) == bool(caplog.text)
    assert not [path for path in kept if path.is_file()]
    monkeypatch.setattr(passes, "library", lambda: library)
    config = read_config(folder)
    assert isinstance(TransformerDecoder(config, load_weights(folder, config), 64).passes, EagerPasses)


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "a window"])
def test_a_native_draft_chain_equals_one_pass_per_token(checkpoint, shape):
    one, prompt = runner(checkpoint(**SHAPES[shape])), ids(20)
    expected, following = [], prompt
    for _ in range(6):
        row = one.score(1, following)[-1]
        following = [int(row[:200].argmax())]
        expected += following
    one.prefill(0, prompt[:-2])
    assert one.draft_chains([SlotInput(0, prompt[-2:])], [6], 200) == [expected]
    assert one.length(0) == one.length(1) == 25
    assert torch.equal(*(one.cache.rows[:, slot, :, :25] for slot in (0, 1)))


def test_native_draft_chains_of_several_requests_equal_those_of_each_alone(checkpoint):
    one, several, steps = runner(checkpoint(), slots=3), [ids(20), ids(9)[::-1], ids(33)], [2, 6, 3]
    alone = []
    for tokens, count in zip(several, steps, strict=True):
        one.prefill(0, tokens[:-2])
        alone += one.draft_chains([SlotInput(0, tokens[-2:])], [count], 200)
        one.truncate(0, 0)
    for slot, tokens in enumerate(several):
        one.prefill(slot, tokens[:-2])
    parts = [SlotInput(slot, tokens[-2:]) for slot, tokens in enumerate(several)]
    assert one.draft_chains(parts, steps, 200) == alone
    assert [one.length(slot) for slot in range(3)] == [21, 14, 35]


def test_a_draft_chain_ends_at_non_finite_logits(checkpoint):
    one = runner(checkpoint())
    one.prefill(0, ids(10))
    one.cache.rows[:, 0, :, 3] = torch.nan
    assert one.draft_chains([SlotInput(0, [5])], [4], 300) == [[]]
    assert one.length(0) == 11


def test_native_draft_chains_are_unavailable_with_sliding_windows_or_torch(checkpoint):
    for one in (runner(checkpoint(**SHAPES["a window"])), runner(checkpoint(), eager=True)):
        assert one.draft_chains([SlotInput(0, ids(3))], [4], 300) is None
        assert one.length(0) == 0


@pytest.mark.parametrize("size", [5, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_large_pages_are_zeroed_and_have_the_requested_size(size):
    memory = large_pages(size)
    assert memory.shape == (size,)
    assert not memory.any()
    memory.fill_(7)
    assert int(memory[-1]) == 7


def test_ordinary_pages_are_used_if_large_pages_are_unavailable(monkeypatch):
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)  # advice that the kernel rejects
    assert not large_pages(3 << 20).any()
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert not large_pages(3 << 20).any()


@pytest.mark.parametrize("width", [5, 16, 37, 4096])
def test_native_argmax_equals_torchs(width):
    """The first of equal values counts, NaN is the largest, and a matrix may be a slice of a wider one."""
    numbers = torch.randint(-3, 3, (9, width + 3), generator=torch.Generator().manual_seed(width)).float()
    numbers[2, width - 1] = torch.inf
    numbers[3, :] = -torch.inf
    numbers[4, width // 2 :] = torch.nan
    numbers[5, width - 1] = torch.nan
    matrices = [numbers[:1, :width], numbers[1:6, :width], numbers[6:, :width].contiguous()]
    places, values = native_argmax(matrices)
    want = numbers[:, :width].argmax(dim=-1)
    assert places == want.tolist()
    found = torch.tensor(values)
    torch.testing.assert_close(found, numbers.gather(-1, want[:, None])[:, 0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param("-mno-avx512f", marks=pytest.mark.skipif(not AVX512, reason="no wider vectors here")),
        pytest.param("-mno-avx", marks=[pytest.mark.soak, pytest.mark.skipif(not X86, reason="x86's flag")]),
    ],
)
def test_processors_with_narrower_vectors_compute_the_same(tmp_path, flag):
    """The passes are compiled for vectors of 32 and of 16 bytes, too."""
    compiler = " ".join([*build._compiler(), flag])
    names = "logits_and_caches_equal_torchs"
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # of the interpreter that is forked
    done = forked_program.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            imported,
            "-k",
            names,
            __file__,
        ],
        engine=True,
        env={**os.environ, "CC": compiler, "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert list((tmp_path / "specclient").rglob("*.so"))


def test_native_argmax_is_unavailable_for_other_types_and_strides():
    assert native_argmax([torch.zeros(1, 4, dtype=torch.bfloat16)]) is None
    assert native_argmax([torch.zeros(4, 1).T, torch.zeros(8, 2)[:, ::2]]) is None
