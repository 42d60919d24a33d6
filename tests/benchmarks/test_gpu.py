"""The GPU benchmark with models small enough for a CPU: its figures, and stages skipped for lack of time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from paths import BENCHMARKS


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu as program

    return program


def test_speculation_figures_are_written_and_plotted(gpu, tmp_path, capsys):
    out = tmp_path / "results"
    gpu.main(["--tiny", "--stages", "plain,free,grid", "--out", str(out)])
    figures = json.loads((out / "gpu.json").read_text())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == figures
    (plain,) = figures["plain"]["rows"]
    assert 0 < plain["share_of_memory"] < 1
    for row in figures["free"]["rows"]:  # all drafted tokens are accepted
        assert row["tokens_a_round"] == row["depth"] + 1
    grid = figures["grid"]["rows"]
    assert [(row["batch"], row["depth"]) for row in grid] == [(1, 1), (1, 3), (3, 1), (3, 3)]
    for row in grid:
        assert 0 < row["acceptance"] <= 1
        assert 1 < row["tokens_a_round"] <= row["depth"] + 1
        assert row["closed_form"] == gpu.theory(row["acceptance"], row["depth"], row["cost"])
    assert {path.name for path in out.iterdir()} == {
        "gpu.json",
        "gpu_acceptance_70.png",
        "gpu_free_draft.png",
    }


def test_stages_without_time_are_recorded_as_not_run_and_keep_earlier_results(gpu, tmp_path):
    (tmp_path / "gpu.json").write_text(json.dumps({"plain": {"rows": [{"tokens_per_s": 1.0}]}}))
    gpu.main(["--tiny", "--minutes", "0", "--stages", "grid,peer", "--out", str(tmp_path)])
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert figures["plain"]["rows"] == [{"tokens_per_s": 1.0}]
    assert figures["grid"] == figures["peer"] == {"not_run": "no time was left"}


def test_theory_is_the_closed_form_of_the_speedup(gpu):
    assert gpu.theory(0.5, 1, 0.0) == 1.5
    assert gpu.theory(0.8, 2, 0.1) == pytest.approx((1 + 0.8 + 0.64) / 1.2)
    assert gpu.theory(1.0, 3, 0.5) == pytest.approx(4 / 2.5)


def test_all_drafted_tokens_are_accepted_when_the_upper_layers_are_scaled_to_zero(gpu):
    bench = gpu.Bench(gpu.TINY_PLAN, gpu.Results(Path("unwritten"), 0.0, lambda: 0.0), tiny=True)
    bench.pair.scale_upper_layers(0.0)
    agreeing = bench.decode(1, 3, forget=True)
    assert agreeing["tokens"] == 4 * agreeing["rounds"]
    bench.pair.scale_upper_layers(1.0)
    assert bench.decode(1, 3, forget=True)["tokens"] < 4 * agreeing["rounds"]


@torch.inference_mode()
def test_transformers_gives_the_same_target_logits(gpu):
    import synthetic

    weights = synthetic.random_weights(synthetic.TINY, torch.float32, "cpu")
    peer = synthetic.Peer(synthetic.TINY, weights, 2)
    own = synthetic.runner(synthetic.TINY, weights, 1, 64)
    ids = [5, 9, 100, 3, 7]
    expected = peer.target(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(own.read(0, ids), expected, atol=1e-4, rtol=1e-4)
    assert peer.draft.config.num_hidden_layers == 2
