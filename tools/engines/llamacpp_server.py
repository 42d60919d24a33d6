"""Run llama.cpp's HTTP server, in float32, until SIGTERM.

    python llamacpp_server.py PORT CONTEXT TARGET [DRAFT]

TARGET and DRAFT are GGUF files. It runs in the environment of llama.cpp. The settings are those of
``llama-server --spec-type draft-simple --spec-draft-n-max 4 --metrics --parallel 1``, and float32 for the
cache, which by default has half the precision.
"""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

import xllamacpp

_FLOAT32: Final = xllamacpp.ggml_type.GGML_TYPE_F32
_DEPTH: Final = 4


def main(port: int, context: int, target: str, draft: str | None = None) -> None:
    """Serve until SIGTERM."""
    params = xllamacpp.CommonParams()
    params.port, params.n_ctx, params.model.path = port, context, target
    params.model_alias = {"target"}
    params.n_parallel = 1
    params.endpoint_metrics = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = _FLOAT32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if draft is not None:
        _set_draft(params.speculative, draft)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = xllamacpp.Server(params)
    print(f"listening at {server.listening_address}", flush=True)
    signal.pause()


def _set_draft(speculative: Any, draft: str) -> None:
    speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    speculative.draft.mparams.path, speculative.draft.n_max = draft, _DEPTH
    speculative.draft.cache_type_k = speculative.draft.cache_type_v = _FLOAT32
    speculative.draft.cpuparams.n_threads = speculative.draft.cpuparams_batch.n_threads = 1


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
