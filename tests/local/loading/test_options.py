"""Load options: invalid settings are rejected by name, without importing torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from specclient_local.loading.options import EngineOptions

from specclient.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "method is 'magic'; allowed are auto, plain, draft, ngram"),
        ({"method": "prediction"}, "method is 'prediction'; allowed are auto, plain"),
        ({"method": "draft"}, "'draft', but draft is None"),
        ({"draft": 3}, "draft is 3; it must be a folder"),
        ({"draft": ["a", ""]}, r"draft is \['a', ''\]"),
        ({"dtype": "fp32"}, "dtype is 'fp32'; allowed are float32, bfloat16, float16"),
        ({"dtype": None}, "dtype is None"),
        ({"draft_dtype": "half"}, "draft_dtype is 'half'; allowed are .*float16, None"),
        ({"device": "gpu"}, "device is 'gpu'; allowed are auto, cpu, cuda, cuda:N, mps"),
        ({"device": "cuda:x"}, "device is 'cuda:x'"),
        ({"device": None}, "device is None"),
        ({"draft_device": "tpu"}, "draft_device is 'tpu'; allowed are .*mps, None"),
        ({"quantize": "int2"}, "quantize is 'int2'; allowed are int8, int4, fp8, None"),
        ({"draft_quantize": 8}, "draft_quantize is 8"),
        ({"draft_dtype": "float16"}, "draft_dtype is 'float16', but there is no draft; name one"),
        ({"draft_device": "cpu"}, "draft_device is 'cpu', but there is no draft"),
        ({"draft_quantize": "int8"}, "draft_quantize is 'int8', but there is no draft"),
        ({"runner": "vllm"}, "runner is 'vllm'; allowed are auto, own, hf"),
        ({"slots": 0}, "slots is 0; allowed is an integer of at least 1"),
        ({"slots": True}, "slots is True"),
        ({"launch_ahead": "yes"}, "launch_ahead is 'yes'; allowed are true, false"),
        ({"launch_ahead": True, "graphs": "off"}, "launch_ahead is True, but graphs is 'off'"),
        ({"launch_ahead": True, "tensor_parallel": 2}, "launch_ahead is True, but passes of a divided"),
        ({"context": 1}, "context is 1; allowed is None, or an integer of at least 2"),
        ({"threads": 0}, "threads is 0"),
        ({"kv_cache": "pages"}, "kv_cache is 'pages'; allowed are contiguous, paged"),
        (
            {"kv_cache": "paged", "cache_tokens": 63},
            "cache_tokens is 63; allowed is None, or an integer of at",
        ),
        ({"cache_tokens": 640}, "cache_tokens is 640, but kv_cache is 'contiguous', whose size is slots"),
        ({"kv_cache": "paged", "graphs": "off"}, "kv_cache is 'paged'; graphs is 'off', but pages need"),
        ({"kv_cache": "paged", "runner": "hf"}, "kv_cache is 'paged'; runner is 'hf'"),
        ({"kv_cache": "paged", "layer_skip": 1}, "kv_cache is 'paged'; layer_skip is set"),
        ({"kv_cache": "paged", "tensor_parallel": 2}, "kv_cache is 'paged'; tensor_parallel is set"),
        (
            {"methd": "plain"},
            "'methd' is not an option of a model; did you mean 'method'\\? Allowed",
        ),
    ],
)
def test_an_invalid_setting_raises_with_the_allowed_values(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        EngineOptions.read(settings)


def test_a_draft_may_be_a_list_and_equal_options_hash_equally():
    read = EngineOptions.read
    assert EngineOptions().draft == read({"draft": None}).draft == ()
    assert (
        read({"draft": "a"})
        == read({"draft": Path("a")})
        == read({"draft": ["a"]})
        == EngineOptions(draft=("a",))
    )
    assert read({"draft": ["a", Path("b")]}).draft == ("a", "b")
    assert len({EngineOptions(("a",)), read({"draft": "a"}), EngineOptions(("a",), device="cuda:1")}) == 2


def test_load_options_do_not_import_torch():
    code = "import sys, specclient_local.loading.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
