"""A real server behind a model: ``specclient serve``, beside the same pair in this process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specclient import AsyncOpenAI, Settings, Strategy

pytestmark = pytest.mark.anyio
PROMPT = "def fibonacci(n):\n"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    (tmp_path / "specclient.toml").write_text('ledger = "off"\n[local]\nthreads = 1\n')
    table = {
        "path": "demo",
        "engine": "specclient",
        "command": [
            sys.executable,
            "-m",
            "specclient_cli",
            "serve",
            "--port",
            "{port}",
            "--model",
            "local/demo",
        ],
        "env": {"SPECCLIENT_CONFIG": str(tmp_path / "specclient.toml"), "OMP_NUM_THREADS": "1"},
    }
    settings = Settings.model_validate({"local": {"threads": 1, "models": {"served": table}}})
    async with AsyncOpenAI(config=settings, ledger="off", max_retries=0) as made:
        yield made


async def test_its_answers_and_telemetry_are_those_of_the_engine(client: AsyncOpenAI) -> None:
    params: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    params["extra_body"] = {"specclient": {"draft_length": 4}}
    own = await client.completions.create(model="local/demo", **params)
    served = await client.completions.create(model="local/served", **params)
    assert served.choices[0].text == own.choices[0].text
    assert served.usage == own.usage
    assert served.meta.speculation is not None
    assert (served.meta.speculation.drafted, served.meta.speculation.source) == (
        own.meta.speculation.drafted,
        "specclient",
    )
    stream = await client.completions.create(model="local/served", stream=True, **params)
    assert "".join([chunk.choices[0].text async for chunk in stream if chunk.choices]) == own.choices[0].text
    assert stream.meta.speculation.drafted == own.meta.speculation.drafted


async def test_its_model_verifies_drafts_of_a_strategy(client: AsyncOpenAI) -> None:
    params: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}
    plain = await client.completions.create(model="local/demo", **params)
    remote = await client.completions.create(
        model="local/served", strategy=Strategy(kind="remote", draft="local/demo-target", depth=4), **params
    )
    assert remote.choices[0].text == plain.choices[0].text
    assert remote.meta.strategy == "remote"
    assert remote.meta.speculation.accepted
