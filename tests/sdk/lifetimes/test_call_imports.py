"""A program that makes one call does not import modules that only other calls need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

#: Libraries of 1 MB and more each that a hosted chat completion does not use.
OTHERS = [
    "anyio", "genai_prices", "httpcore", "httpx", "httpx2", "opentelemetry", "prometheus_client", "rich",
    "sqlalchemy", "starlette", "tiktoken", "torch", "transformers", "uvicorn",
]  # fmt: skip
#: Modules of this package, with their submodules, that load with the first call that needs them.
OURS = [
    "batch", "budgets", "call.failover", "call.strategies", "draft_target", "ledger.postgres", "reports",
    "openai_api.unions", "serving", "structured", "types.responses",
]  # fmt: skip

SYNC = "create(OpenAI(base_url=URL, api_key='k'))"
ASYNC = """
async def main():
    async with AsyncOpenAI(base_url=URL, api_key='k') as client:
        await create(client)
asyncio.run(main())
"""


@pytest.mark.parametrize("call", [SYNC, ASYNC], ids=["sync", "async"])
def test_one_call_does_not_import_modules_of_other_calls(
    program: Any, far_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    program(call, far_server, dev=False)  # the first call of a model on a machine reads the price catalogue
    loaded = program(f"{call}\nprint(*sys.modules)", far_server, dev=False).split()
    assert {"aiohttp", "sqlite3", "specclient.resources.chat"} <= set(loaded)
    deferred = (*OTHERS, *(f"specclient.{name}" for name in OURS))
    assert [name for name in loaded if any(f"{name}.".startswith(f"{other}.") for other in deferred)] == []
