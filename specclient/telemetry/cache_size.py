"""The size of a server's cache of keys and values, from its page of Prometheus metrics.

vLLM reports its configuration as labels of ``vllm:cache_config_info``; the tokens are blocks times the tokens
of a block. Source: https://docs.vllm.ai/en/latest/usage/metrics/, as of vLLM 0.32. SGLang has the gauge
``sglang:max_total_num_tokens``.
"""

from __future__ import annotations

import math
import re

from specclient.telemetry.prometheus import samples

__all__ = ["cache_tokens"]

_VLLM, _SGLANG = "vllm:cache_config_info", "sglang:max_total_num_tokens"
_BLOCKS = re.compile(r'(?:^|,)num_gpu_blocks="(\d{1,15})"')
_BLOCK_SIZE = re.compile(r'(?:^|,)block_size="(\d{1,15})"')


def cache_tokens(text: str) -> float | None:
    """Return the tokens that a server's cache holds, those of several engines together; None where unknown.

    Args:
        text: the page. Malformed lines are left out.
    """
    total = 0.0
    for name, labels, printed in samples(text):
        if name == _VLLM:
            blocks, size = _BLOCKS.search(labels), _BLOCK_SIZE.search(labels)
            if blocks is not None and size is not None:
                total += int(blocks[1]) * int(size[1])
        elif name == _SGLANG:
            try:
                value = float(printed)
            except ValueError:
                continue
            if math.isfinite(value) and value > 0:
                total += value
    return total or None
