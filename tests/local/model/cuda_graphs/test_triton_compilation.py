"""The kernels compile for every supported generation of CUDA devices; this needs triton, but no device."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")

from specclient_local.model.cuda_graphs import triton_cuts as cuts  # noqa: E402
from specclient_local.model.cuda_graphs import triton_kernels as kernels  # noqa: E402
from specclient_local.model.cuda_graphs import triton_products as products  # noqa: E402
from specclient_local.model.cuda_graphs import triton_sampling as sampling  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

ATTENTION = {"HEADS": 32, "SHARED": 8, "DIM": 128, "BLOCK_D": 128, "TILES": 1, "BLOCK_M": 32, "SPLIT": 256}
STEP = {"BLOCK_N": 64, "PRECISION": "tf32"}
_FLOATS = ("cos", "sin", "partial", "stats", "tops", "sums", "highest", "p")
_INTEGERS = (
    *(
        "rows",
        "slot_stride",
        "head_stride",
        "table_stride",
        "window",
        "capacity",
        "splits",
        "outputs",
        "width",
        "part",
    ),
    *("vocab", "stride", "pairs"),
)
_INTEGER_ROWS = ("top_k", "before", "counts", "weights", "state", "k_state", "k_sums", "first_sums")
TYPES = {
    **dict.fromkeys(("slots", "places", "positions", "origins", "words", "ends", "best"), "*i64"),
    **dict.fromkeys((*_INTEGER_ROWS, "least", "bounds"), "*i64"),
    **dict.fromkeys(_FLOATS, "*fp32"),
    **dict.fromkeys(_INTEGERS, "i32"),
    **dict.fromkeys(("temperature", "uniform", "top_p"), "*fp64"),
    "eps": "fp32",
    "arrived": "*i32",
    "block_table": "*i32",
}
"""Types of arguments by name; all others are pointers to bfloat16, or what a case names."""

SIZES = {"BLOCKS": 32, "PADDED": 32, "BLOCK": 4096}
CASES = {
    "add_norm": (kernels.add_norm_kernel, {"SIZE": 4096, "BLOCK": 4096, "ADD": True}, {}),
    "rotate": (
        kernels.rotate_kernel,
        {"HEADS": 32, "SHARED": 8, "DIM": 128, "PAIRS": 64, "NORM": True},
        {"norm": "*bf16"},
    ),
    "attend": (
        kernels.attend_kernel,
        {**ATTENTION, **STEP, "WORDS": True, "WINDOW": True, "PAGED": False},
        {"scale": "fp32", "block_table": "*i64"},
    ),
    "attend_in_pages": (
        kernels.attend_kernel,
        {**ATTENTION, **STEP, "WORDS": True, "WINDOW": False, "PAGED": True},
        {"scale": "fp32"},
    ),
    "read_a_prompt_in_pages": (
        kernels.attend_kernel,
        {**ATTENTION, **STEP, "SPLIT": 4096, "WORDS": False, "WINDOW": False, "PAGED": True},
        {"scale": "fp32"},
    ),
    "rotate_into_pages": (
        kernels.rotate_kernel,
        {"HEADS": 32, "SHARED": 8, "DIM": 128, "PAIRS": 64, "NORM": False},
        {"norm": "*fp32", "slots": "*i32"},
    ),
    "combine": (kernels.combine_kernel, {**ATTENTION, "CHUNK": 16}, {}),
    "gate": (kernels.gate_kernel, {"SIZE": 14336, "BLOCK": 1024}, {}),
    "int8_product": (
        products.int8_product_kernel,
        {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "WEIGHT_LEFT": False, "SPLIT": True, "WHOLE": False},
        {"weight": "*i8"},
    ),
    "int8_product_of_many_rows": (
        products.int8_product_kernel,
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128, "WEIGHT_LEFT": True, "SPLIT": False, "WHOLE": True},
        {"weight": "*i8"},
    ),
    "int4_product": (
        products.int4_product_kernel,
        {"BLOCK_M": 16, "BLOCK_N": 64, "QUARTER": 64, "WEIGHT_LEFT": False, "SPLIT": True, "WHOLE": False},
        {"weight": "*i16"},
    ),
    "int4_product_of_many_rows": (
        products.int4_product_kernel,
        {"BLOCK_M": 64, "BLOCK_N": 64, "QUARTER": 64, "WEIGHT_LEFT": True, "SPLIT": False, "WHOLE": True},
        {"weight": "*i16"},
    ),
    "fp8_rows": (
        kernels.fp8_rows_kernel,
        {"SIZE": 4096, "BLOCK": 4096, "LARGEST": 448.0, "TINY": 1e-12},
        {"out": "*fp8e4nv", "scale": "*fp32"},
    ),
    "blocks": (
        sampling.blocks_kernel,
        {"BLOCKS": 32, "BLOCK": 4096, "SUMS": True},
        {"places": "*i32"},
    ),
    "probabilities": (
        sampling.probabilities_kernel,
        {**SIZES, "WRITE": True},
        {"places": "*i32", "out": "*fp32"},
    ),
    "count": (cuts.count_kernel, {**SIZES, "LAST": 256, "STEP": 16}, {"sums": "*i64"}),
    "mass": (cuts.mass_kernel, {**SIZES, "LAST": 0, "STEP": 4096, "SCALE": 2.0**45}, {"sums": "*i64"}),
    "later_mass": (cuts.mass_kernel, {**SIZES, "LAST": 16, "STEP": 1, "SCALE": 2.0**45}, {"sums": "*i64"}),
    "ties": (cuts.ties_kernel, SIZES, {"ties": "*i32"}),
    "cut": (cuts.cut_kernel, {**SIZES, "SCALE": 2.0**45}, {"ties": "*i32", "out": "*fp32"}),
    "block_sums": (sampling.block_sums_kernel, {"BLOCKS": 32, "BLOCK": 4096}, {"sums": "*fp64"}),
    "draw": (
        sampling.draw_kernel,
        SIZES,
        {"sums": "*fp64", "out": "*i64"},
    ),
}


@pytest.mark.parametrize("capability", [80, 89, 90, 100])
@pytest.mark.parametrize("name", CASES)
def test_kernels_compile_for_every_generation(name, capability):
    kernel, constants, types = CASES[name]
    if name == "fp8_rows" and capability < 89:
        pytest.skip("fp8 needs compute capability 8.9")
    signature = {
        argument: "constexpr" if argument in constants else types.get(argument, TYPES.get(argument, "*bf16"))
        for argument in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert f"sm_{capability}" in compiled.asm["ptx"]
