"""Compiled passes: the numbers of torch's, the same bits in any company, and life without a compiler."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from types import SimpleNamespace

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
from specclient_local.model.native import huge_pages as pages
from specclient_local.model.native import passes as passes
from specclient_local.model.native.argmax import native_argmax
from specclient_local.model.native.huge_pages import large_pages
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.weights import load_weights
from specclient_local.request.token_tree import TokenTree

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

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
    """Set torch's threads, and set them back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_caches_are_those_of_torch(checkpoint, shape):
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
def test_a_row_has_the_same_bits_in_any_pass(checkpoint, shape, count, threads):
    """One by one, in prompts cut anywhere, and among other requests, on however many threads."""
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
def test_matrices_in_bfloat16_give_the_bits_of_the_same_numbers_in_float32(checkpoint, shape):
    folder, prompt = checkpoint(**SHAPES[shape]), ids(41)
    config = read_config(folder)
    half = load_weights(folder, config, "bfloat16").widened()
    full = load_weights(rounded(folder), config)
    assert half.layers[0].qkv.dtype == torch.bfloat16
    assert not torch.equal(full.head, load_weights(folder, config).head), (
        "the numbers were not bfloat16's before"
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
    """Return a copy of a checkpoint whose numbers are bfloat16's, held in float32."""
    other = folder.parent / f"{folder.name}-rounded"
    shutil.copytree(folder, other)
    tensors = load_file(other / "model.safetensors")
    save_file(
        {name: tensor.bfloat16().float() for name, tensor in tensors.items()}, other / "model.safetensors"
    )
    return other


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_of_a_tree_has_the_bits_of_its_path_alone(checkpoint, shape):
    """Whatever stands between a guess and its ancestors in the cache."""
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


def test_some_of_the_layers_are_a_model_of_their_own(checkpoint):
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


def test_extreme_numbers_stay_what_they_are(checkpoint):
    """Weights so large that every exponential is at its end."""
    folder = checkpoint(spread=30.0)
    mine, want = (one.score(0, ids(20), branching()) for one in (runner(folder), runner(folder, eager=True)))
    assert torch.isfinite(mine).all()
    torch.testing.assert_close(mine, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))


def test_two_threads_of_python_compute_at_once(threads):
    """Each pass has its helpers to itself."""
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


def test_a_forked_child_computes_with_helpers_of_its_own(threads):
    threads(2)
    one, prompt = runner(BUNDLED / "draft", slots=1), ids(20)
    want = one.read(0, prompt)
    child = os.fork()
    if child == 0:
        one.truncate(0, 0)
        got = one.read(0, prompt)
        torch.set_num_threads(1)  # torch's own helpers stayed with the parent
        os._exit(0 if torch.equal(got, want) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Build with an empty cache folder and the environment given; return the library and what is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    library = build.library.__wrapped__  # not what this process has loaded

    def build_with(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return library(), sorted(tmp_path.rglob("*"))

    return build_with


def test_what_is_compiled_is_kept_and_nothing_else(built, monkeypatch):
    library, kept = built()
    assert library.specclient_pass
    assert [path.suffix for path in kept if path.is_file()] == [".so"]
    assert kept[-1].parent.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(build, "_compile", None)
    assert built()[0] is not None


def test_a_damaged_library_is_compiled_again(built):
    kept = build._built(build._compiler(), build._kept())
    kept.write_bytes(b"\x7fELF")
    assert built()[0] is not None
    assert kept.stat().st_size > 1000


def writable_by_all(folder, monkeypatch):
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def in_the_way(folder, monkeypatch):
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_bytes(b"")


def mounted_without_programs(folder, monkeypatch):
    told = SimpleNamespace(f_flag=getattr(os, "ST_NOEXEC", 8))
    monkeypatch.setattr(os, "ST_NOEXEC", told.f_flag, raising=False)
    monkeypatch.setattr(os, "statvfs", lambda path: told)


@pytest.mark.parametrize("unusable", [writable_by_all, in_the_way, mounted_without_programs])
def test_where_nothing_can_be_kept_it_is_loaded_and_leaves_nothing(built, tmp_path, monkeypatch, unusable):
    """As on read-only homes; and in a folder that others write to lies what others want to be run."""
    monkeypatch.setattr(build, "_FLAGS", ("-O0", "-shared", "-fPIC", "-pthread"))
    unusable(user_cache_path("specclient", appauthor=False) / "native", monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library, left = built()
    assert library.specclient_pass
    assert not [path for path in left if path.suffix == ".so"]
    assert not list(tmp_path.glob("specclient-native-*"))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PATH": "/nowhere", "CC": ""}, "no C compiler"),
        ({"CC": "false"}, "could not be compiled, so torch is used"),
        ({"SPECCLIENT_NATIVE": "off"}, ""),
    ],
)
def test_without_a_compiler_torch_computes(built, checkpoint, monkeypatch, caplog, environment, said):
    folder = checkpoint()
    caplog.set_level("INFO", "specclient")
    library, kept = built(**environment)
    assert library is None
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)
    assert not [path for path in kept if path.is_file()]
    monkeypatch.setattr(passes, "library", lambda: library)
    config = read_config(folder)
    assert isinstance(TransformerDecoder(config, load_weights(folder, config), 64).passes, EagerPasses)


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "a window"])
def test_a_chain_of_likeliest_tokens_is_that_of_pass_after_pass(checkpoint, shape):
    one, prompt = runner(checkpoint(**SHAPES[shape])), ids(20)
    expected, following = [], prompt
    for _ in range(6):
        row = one.score(1, following)[-1]
        following = [int(row[:200].argmax())]
        expected += following
    one.prefill(0, prompt[:-2])
    assert one.draft_chain(0, prompt[-2:], 6, 200) == expected
    assert one.length(0) == one.length(1) == 25
    assert torch.equal(*(one.cache.rows[:, slot, :, :25] for slot in (0, 1)))


def test_a_chain_ends_where_logits_are_not_finite(checkpoint):
    one = runner(checkpoint())
    one.prefill(0, ids(10))
    one.cache.rows[:, 0, :, 3] = torch.nan
    assert one.draft_chain(0, [5], 4, 300) == []
    assert one.length(0) == 11


def test_no_chain_is_offered_where_a_layer_slides_or_torch_computes(checkpoint):
    for one in (runner(checkpoint(**SHAPES["a window"])), runner(checkpoint(), eager=True)):
        assert one.draft_chain(0, ids(3), 4, 300) is None
        assert one.length(0) == 0


@pytest.mark.parametrize("size", [5, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_large_pages_are_zero_and_whole(size):
    memory = large_pages(size)
    assert memory.shape == (size,)
    assert not memory.any()
    memory.fill_(7)
    assert int(memory[-1]) == 7


def test_a_kernel_without_large_pages_is_served_by_small_ones(monkeypatch):
    monkeypatch.setattr(pages.mmap, "MADV_HUGEPAGE", -1)  # an advice that the kernel refuses
    assert not large_pages(3 << 20).any()
    monkeypatch.delattr(pages.mmap, "MADV_HUGEPAGE")
    assert not large_pages(3 << 20).any()


@pytest.mark.parametrize("width", [5, 16, 37, 4096])
def test_the_largest_of_all_rows_are_those_of_torch(width):
    """The first of equal ones; no number is larger than NaN; a matrix may be part of a wider one."""
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


def test_other_numbers_are_left_to_torch():
    assert native_argmax([torch.zeros(1, 4, dtype=torch.bfloat16)]) is None
    assert native_argmax([torch.zeros(4, 1).T, torch.zeros(8, 2)[:, ::2]]) is None
