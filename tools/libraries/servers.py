"""The servers of the checks: canned answers, and ``specclient serve`` with the bundled model."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libraries.canned_server import MODEL, canned_server
from libraries.environments import BUILD, ROOT

_BUNDLED: Final = ROOT / "local" / "specclient_local" / "bundled"
_STOP_S: Final = 60.0
#: A chat template in the style of Llama 3, which the bundled model's own lacks: it has no tools.
_TEMPLATE: Final = (
    "{{ bos_token }}{% for t in tools or [] %}# {{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}{{ m.content }}"
    '{% for c in m.tool_calls or [] %}{"name": "{{ c.function.name }}", '
    '"parameters": {{ c.function.arguments | tojson }}}{% endfor %}\n{% endfor %}'
)
#: For each server the model that answers, and the one that calls tools.
MODELS: Final = {"canned": (MODEL, MODEL), "demo": ("local/demo", "local/demo-tools")}


@dataclass(frozen=True)
class RunningServers:
    """Base URLs of the running servers, and the environment for programs that use the pipeline."""

    canned_url: str
    served_url: str
    environment: dict[str, str]


@contextlib.contextmanager
def running_servers() -> Iterator[RunningServers]:
    """Run the canned server and ``specclient serve``, whose default provider is the canned server."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".home-", dir=BUILD) as folder, canned_server() as canned_url:
        home = Path(folder)
        environment = _environment(home, _config(home, canned_url))
        command = "from specclient_cli.main import main; main()"
        with subprocess.Popen(
            [sys.executable, "-c", command, "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'local'}:{ROOT / 'cli'}"},
            cwd=home,
        ) as process:
            assert process.stdout is not None
            try:
                yield RunningServers(canned_url, _announced(process.stdout), environment)
            finally:
                process.send_signal(signal.SIGINT)
                process.stdout.close()
                process.wait(_STOP_S)


def _announced(lines: Iterator[str]) -> str:
    for line in lines:
        if found := re.search(r"at (http://\S+/v1)$", line.rstrip()):
            return found[1]
    raise RuntimeError("specclient serve ended before it listened; run it by hand to see why")


def _config(home: Path, canned_url: str) -> Path:
    """Write the settings: the canned server as OpenAI's API, and the bundled model with tools."""
    made = home / "demo-tools"
    made.mkdir(exist_ok=True)
    for file in (_BUNDLED / "target").iterdir():
        if file.name != "tokenizer_config.json" and not (made / file.name).exists():
            (made / file.name).symlink_to(file)
    settings = json.loads((_BUNDLED / "target" / "tokenizer_config.json").read_text(encoding="utf-8"))
    (made / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": _TEMPLATE}))
    config = home / "specclient.toml"
    config.write_text(
        f"[providers.openai]\nbase_url = {json.dumps(canned_url)}\n\n"
        f"[local.models.demo-tools]\npath = {json.dumps(str(made))}\n"
        f"draft = {json.dumps(str(_BUNDLED / 'draft'))}\n"
    )
    return config


def _environment(home: Path, config: Path) -> dict[str, str]:
    """Return an environment without other settings, in which no library reports its use."""
    dropped = ("OPENAI_", "SPECCLIENT_", "HF_", "PYTHONPATH", "LANGFUSE_", "LANGSMITH_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and not k.endswith("_API_KEY")}
    return kept | {
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "OPENAI_API_KEY": "any",
        "SPECCLIENT_CONFIG": str(config),
        "SPECCLIENT_LEDGER": str(home / "ledger.sqlite3"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "OTEL_SDK_DISABLED": "false",
        "PYDANTIC_DISABLE_PLUGINS": "1",
    }
