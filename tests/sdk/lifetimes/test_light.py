"""What a program that makes one call has not imported: what other calls need comes in with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

#: Of other libraries: what a chat completion over our own sockets has no use for.
OTHERS = [
    "anyio", "click", "genai_prices", "httpcore", "httpx", "httpx2",
    "opentelemetry", "platformdirs", "prometheus_client", "pydantic_settings", "rich", "sqlalchemy",
    "starlette", "statistics", "tenacity",
    "tiktoken", "tomllib", "torch", "transformers", "uvicorn",
]  # fmt: skip
#: Of this package, with all that is below them.
OURS = [
    "client.azure", "budgets.budgets", "budgets.tables", "budgets.worker", "budgets.bounds",
    "budgets.messages", "ledger.postgres", "reports.page", "reports.report", "reports.reader",
    "reports.savings", "ledger.totals", "resources.costs", "lib",
    "client.module_client", "call.tracing", "pagination", "resources.agents.tool_calls",
    "resources.assistants", "resources.beta", "resources.embeddings", "resources.step_methods",
    "resources.polling", "resources.raw_response", "resources.responses",
    "openai_api.endpoints.audio", "openai_api.endpoints.batches", "openai_api.endpoints.beta",
    "openai_api.unions", "resources.response_forms", "serving",
    "telemetry.prometheus", "call.strategies", "structured", "tokens.chat", "tokens.text", "types.binary",
    "types.budget", "types.chat.parsed_chat_completion", "types.pages", "types.responses",
    "transport.clients.defaults",
]  # fmt: skip

SYNC = "whole(OpenAI(base_url=URL, api_key='k'))"
ASYNC = """
async def main():
    async with AsyncOpenAI(base_url=URL, api_key='k') as client:
        await whole(client)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs is asked elsewhere")
@pytest.mark.parametrize("call", [SYNC, ASYNC], ids=["sync", "async"])
def test_one_call_imports_what_it_needs(
    program: Any, far_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    program(call, far_server, dev=False)  # a model's first call ever reads the catalogue of prices
    loaded = program(f"{call}\nprint(*sys.modules)", far_server, dev=False).split()
    assert {"aiohttp", "sqlite3", "specclient.resources.chat"} <= set(loaded)
    put_off = (*OTHERS, *(f"specclient.{name}" for name in OURS))
    assert [name for name in loaded if any(f"{name}.".startswith(f"{other}.") for other in put_off)] == []
