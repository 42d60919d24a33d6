"""The size of a server's cache, from its page."""

from __future__ import annotations

import pytest

from specclient.telemetry.cache_size import cache_tokens

VLLM = (
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27000",'
    'num_gpu_blocks_override="None"} 1.0\n'
)


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        (VLLM, 432_000),
        (VLLM + VLLM.replace('engine="0"', 'engine="1"'), 864_000),
        (VLLM.replace("27000", "None"), None),
        ('sglang:max_total_num_tokens{model_name="m"} 150000.0\n', 150_000),
        ("sglang:max_total_num_tokens NaN\nsglang:max_total_num_tokens x\n", None),
        ('vllm:cache_config_info{block_size="9' + "9" * 5000 + '"} 1\n', None),
        ("", None),
    ],
)
def test_tokens_of_all_engines(page: str, tokens: float | None) -> None:
    assert cache_tokens(page) == tokens
