"""Every example runs unchanged, without an API key or a network, and has a docstring."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import forked_program
import pytest
from forked_program import STRICT
from loopback_server import TEXT, OpenAIServer, events, reply
from paths import EXAMPLES

SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from tiny_models import write_checkpoint

    folder = tmp_path_factory.mktemp("examples")
    target = write_checkpoint(folder / "target", max_position_embeddings=512, eos_token_id=None)
    return target, write_checkpoint(
        folder / "draft", num_hidden_layers=1, max_position_embeddings=512, eos_token_id=None
    )


@pytest.fixture
def example(checkpoints: tuple[Path, Path], tmp_path: Path):
    """Return a function that runs an example in an empty folder, with tiny models as the bundled pair."""
    target, draft = checkpoints
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "specclient.toml").write_text(
        f'[local]\nthreads = 1\n[local.models.demo]\npath = "{target}"\ndraft = "{draft}"\n'
        f'[local.models.demo-target]\npath = "{target}"\ndraft = "{draft}"\nmethod = "plain"\n'
    )

    def run(name: str, *arguments: str, warning: str = "") -> str:
        done = forked_program.run(
            [sys.executable, *STRICT, EXAMPLES / name, *arguments],
            engine=True,
            text=True,
            cwd=tmp_path / "cwd",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert (done.returncode, warning in done.stderr) == (0, True), done.stderr
        assert bool(done.stderr) is bool(warning), done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_example_has_at_most_40_lines_and_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert ast.get_docstring(ast.parse(text))


def test_quickstart(example) -> None:
    out = example("quickstart.py")
    assert "served by local/demo" in out
    assert "acceptance rate" in out
    assert "estimated: True" in out


def test_official_client(example) -> None:
    out = example("official_client.py")
    assert "route local/demo cost 0" in out
    assert "acceptance rate 0." in out or "acceptance rate 1.0" in out


def test_async_stream(example) -> None:
    out = example("async_stream.py")
    assert out.count("characters drafted") == 2
    assert "class Stack:\n" in out


def test_routing(example) -> None:
    out = example("routing.py")
    assert "minimize latency: local/demo" in out
    assert "minimize cost: local/demo" in out
    assert out.count("chosen") >= 2
    assert "none of 3 candidates satisfies the policy" in out


def test_routing_simulated(example) -> None:
    out = example("routing_simulated.py")
    assert out.count("the router") == out.count("an oracle") == out.count("always ") == 2
    assert "minimize latency" in out


def test_cost_report(example) -> None:
    out = example("cost_report.py")
    assert "search 2 calls" in out
    assert "ads 1 calls" in out
    assert "total 3 calls" in out


def test_engine(example, checkpoints: tuple[Path, Path]) -> None:
    out = example("engine.py", *map(str, checkpoints))
    assert "def fibonacci(n):" in out
    assert "96 tokens in" in out


def test_openai_compatible(example) -> None:
    with OpenAIServer() as server:
        out = example("openai_compatible.py", server.base_url, warning="no price for openai/m-large")
        assert server.requests[-1].json["model"] == "m-large"
    assert out.startswith(TEXT)
    assert "cost None from no price for" in out


def test_structured(example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = json.dumps({"steps": [{"title": "Water it", "minutes": 5}]})
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    pieces = [{"index": 0, "delta": {"content": piece}} for piece in (text[:20], text[20:])]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    frames = [b"data: %b\n\n" % json.dumps({"choices": [each]}).encode() for each in (*pieces, last)]
    with OpenAIServer() as server:
        server.script(reply(200, {"choices": [choice]}), events(*frames, b"data: [DONE]\n\n"))
        shown = example("structured.py", server.base_url)
    assert shown.count("steps=[Step(title='Water it', minutes=5)]") == 2
    assert server.requests[0].json["response_format"]["json_schema"]["strict"] is True


def test_draft_target(example) -> None:
    out = example("draft_target.py")
    assert "draft   local/demo " in out
    assert "sent to the target as prediction: the target's endpoint verifies predictions" in out
    assert "share of the draft in the answer" in out
    assert "Speculation(method='prediction'" in out
    assert len(out.splitlines()) >= 10


def test_strategies(example) -> None:
    out = example("strategies.py", "local/demo", warning="no price for specclient/local/demo-target")
    assert "remote: the target's own answer True" in out
    assert "Speculation(method='remote'" in out
    assert "prediction: strategy 'prediction' requested; sent with the answer of local/demo" in out
    assert "2 calls: Speculation(method='prediction'" in out


def test_batch(example) -> None:
    out = example("batch.py")
    assert "3 answered, 0 done before," in out
    assert "0 answered, 3 done before," in out
    assert out.count("\nc") == 3
    assert out.count(" 200 ") == 3
