"""Server fixtures: one shared server of the bundled pair, and a gateway to a loopback upstream per test."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import openai
import pytest
import specclient_local
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer

from specclient.config import Settings

#: A chat template that renders tools, calls and results in the Hermes format.
TEMPLATE = (
    "{{ bos_token }}{% if tools %}# {{ tools[0].function.name }}\n{% endif %}{% for m in messages %}"
    "{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}\n{% endfor %}"
)


@pytest.fixture(scope="session")
def local_server() -> Iterator[Served]:
    """A server of ``local/demo`` and ``local/demo-target``, the bundled pair."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("OPENAI_")]:
            patch.delenv(name)
        with Served(Settings.model_validate({"ledger": "off", "local": {"threads": 1}})) as served:
            yield served


@pytest.fixture(scope="session")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of ``local/taught``: the bundled draft, with a chat template that supports tools."""
    folder = tmp_path_factory.mktemp("taught") / "taught"
    shutil.copytree(Path(specclient_local.__file__).parent / "bundled" / "draft", folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    models = {"taught": {"path": str(folder)}}
    with Served(Settings.model_validate({"ledger": "off", "local": {"threads": 1, "models": models}})) as it:
        yield it


@pytest.fixture
def gateway(openai_server: OpenAIServer) -> Iterator[Served]:
    """A gateway to ``openai_server``, which is the provider ``mine``."""
    with Served(upstream_settings(openai_server)) as served:
        yield served


@pytest.fixture
def connect() -> Iterator[Callable[[str], openai.OpenAI]]:
    """Create official clients for a base URL, without retries."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(openai.OpenAI(base_url=url, api_key="any", max_retries=0))
