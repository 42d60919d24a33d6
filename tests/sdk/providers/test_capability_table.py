"""The table of providers in the documentation equals the presets."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

from specclient import Settings
from specclient.providers import PRESETS
from specclient.providers.capability_table import COLUMNS, markdown, words
from specclient.providers.configuration import endpoints
from specclient.types.capabilities import Capabilities

PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")


def test_the_page_has_the_table_of_the_presets() -> None:
    assert markdown() in PAGE, "paste what `python -m specclient.providers.capability_table` prints"


def test_the_module_prints_the_table() -> None:
    command = [sys.executable, "-m", "specclient.providers.capability_table"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == markdown() + "\n"


def test_every_provider_has_a_line() -> None:
    lines = markdown().splitlines()
    for row in PRESETS.values():
        assert any(line.startswith(f"| {row.title} | `{row.name}/` | {row.dialect} |") for line in lines)
        assert not row.note or f"- **{row.title}**: {row.note}." in lines
    assert any(line.startswith("| Vertex AI") for line in lines)
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Capabilities(), ("unknown", "unknown", "unknown", "unknown", "unknown")),
        (
            Capabilities(
                prediction=False, telemetry=(), prefill=False, verification=False, streamed_usage=False
            ),
            ("no", "no", "no", "no", "no"),
        ),
        (
            Capabilities(
                prediction=True,
                speculation=True,
                draft_model=True,
                draft_length="options.n",
                telemetry=("vllm", "openai"),
                prefill="prefix",
                verification="echo",
                streamed_usage="asked",
            ),
            (
                "prediction, speculation, draft_model, options.n",
                "vllm, openai",
                "prefix",
                "echo",
                "include_usage",
            ),
        ),
        (
            Capabilities(draft_model=True, streamed_usage="unasked"),
            ("draft_model", "unknown", "unknown", "unknown", "by itself"),
        ),
    ],
)
def test_the_cells_of_capabilities(known: Capabilities, expected: tuple[str, ...]) -> None:
    cells = words(known)
    assert tuple(cells.values()) == expected
    assert list(cells) == list(COLUMNS)


def test_the_configuration_on_the_page_is_valid() -> None:
    part = PAGE.split("```toml\n")[1].split("```")[0]
    known = endpoints(Settings.model_validate(tomllib.loads(part)), {"MINE_API_KEY": "k"})["mine"]
    assert known.capabilities == Capabilities(prediction=True, verification="prompt_logprobs")


def test_the_code_on_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_API_KEY", "k")
    part = PAGE.split("```python\n")[1].split("```")[0]
    namespace: dict[str, object] = {}
    exec(part, namespace)
    endpoint = namespace["client"].pipeline.destinations.get("mine")  # type: ignore[attr-defined]
    assert endpoint.capabilities == Capabilities(prediction=True, verification="prompt_logprobs")
    assert endpoint.drop_params
