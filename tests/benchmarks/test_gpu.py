"""The GPU benchmark with models small enough for a CPU: its checks and figures, and stages without time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from paths import BENCHMARKS


@pytest.fixture(autouse=True)
def few_timed_rounds(monkeypatch):
    """Time one round of each shape when an engine is loaded; its costs are no result of these checks."""
    monkeypatch.setattr("specclient_local.loading.device_calibration._TURNS", 1)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu as program

    return program


def test_speculation_figures_are_written_and_plotted(gpu, tmp_path, capsys):
    out = tmp_path / "results"
    gpu.main(["--tiny", "--stages", "plain,free,batches,eagle,pages,grid,policy", "--out", str(out)])
    figures = json.loads((out / "gpu.json").read_text())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == figures
    (plain,) = figures["plain"]["rows"]
    assert 0 < plain["share_of_memory"] < 1
    for row in figures["free"]["rows"]:  # all drafted tokens are accepted
        assert row["tokens_a_round"] == row["depth"] + 1
    assert [row["batch"] for row in figures["batches"]["rows"]] == [1, 3]
    assert [(row["batch"], row["depth"]) for row in figures["eagle"]["rows"]] == [
        (1, 1),
        (1, 3),
        (3, 1),
        (3, 3),
    ]
    *rounds, prompt = figures["pages"]["rows"]
    assert [(row["batch"], row["depth"]) for row in rounds] == [(1, 0), (1, 4), (3, 0), (3, 4)]
    assert all(row["paged_over_contiguous"] > 0 for row in (*rounds, prompt))
    grid = figures["grid"]["rows"]
    assert [(row["batch"], row["depth"]) for row in grid] == [(1, 1), (1, 3), (3, 1), (3, 3)]
    for row in grid:
        assert 0 < row["acceptance"] <= 1
        assert 1 < row["tokens_a_round"] <= row["depth"] + 1
        assert row["closed_form"] == gpu.theory(row["acceptance"], row["depth"], row["cost"])
    policy = figures["policy"]["rows"]
    assert [row["batch"] for row in policy] == [1, 3] * (len(policy) // 2)
    assert policy[0]["acceptance"] == 0.3
    for row in policy:
        assert 1 <= row["tokens_a_round"] <= row["drafted_a_round"] + 1 + 1e-9  # quotients of whole numbers
    assert {path.name for path in out.iterdir()} == {
        "gpu.json",
        "gpu_acceptance_70.png",
        "gpu_free_draft.png",
        "gpu_batches.png",
        "gpu_eagle.png",
    }


def test_stages_without_time_are_recorded_as_not_run_and_keep_earlier_results(gpu, tmp_path):
    (tmp_path / "gpu.json").write_text(json.dumps({"plain": {"rows": [{"tokens_per_s": 1.0}]}}))
    gpu.main(["--tiny", "--minutes", "0", "--stages", "grid,peer", "--out", str(tmp_path)])
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert figures["plain"]["rows"] == [{"tokens_per_s": 1.0}]
    assert figures["grid"] == figures["peer"] == {"not_run": "no time was left"}


def test_resuming_runs_only_stages_without_results(gpu, tmp_path):
    (tmp_path / "gpu.json").write_text(json.dumps({"plain": {"rows": [{"tokens_per_s": 1.0}]}}))
    gpu.main(["--tiny", "--resume", "--stages", "plain,batches", "--out", str(tmp_path)])
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert figures["plain"]["rows"] == [{"tokens_per_s": 1.0}]
    assert len(figures["batches"]["rows"]) == 2


@pytest.fixture
def checklist(gpu):
    import gpu_checklist

    return gpu_checklist


def test_every_check_of_the_list_is_known(checklist):
    assert tuple(checklist.checks()) == checklist.NAMES
    assert tuple(CHECKED) == checklist.NAMES


def no_error_above(results):
    return all(max(errors.values()) < 0.01 for errors in results.values())


def all_methods_agree(results):
    rows = [results[f"{method}, float32"] for method in ("plain", "eagle")]
    return {(row["as plain"], row["as float32 on the CPU"], row["reproduced"]) for row in rows} == {
        ("all", "all", True)
    }


CHECKED = {
    "environment": lambda results: results["operations"] == "TorchOps",
    "alignment": lambda results: results == {"torch.bfloat16": "ok", "torch.float32": "ok"},
    "operations": no_error_above,
    "attention": lambda results: "1x5 over 512, ours" in results,
    "pages": lambda results: all(row["same bits"] for row in results.values()),
    "products": lambda results: len(results) == 5,
    "quantised": lambda results: "bfloat16, 16 rows of 256x256, us" in results,
    "prefill": lambda results: len(results) == 8,
    "recordings": lambda results: len(results["first rounds"]) == 12,
    "gaps": lambda results: all(row["round_ms"] > 0 for row in results.values()),
    "ahead": lambda results: {row["same"] for row in results.values()} == {True},
    "sampling": lambda results: len(results) == 6,
    "identity": lambda results: set(results.values()) == {"same"},
    "profile": lambda results: all(row["launches"] > 0 for row in results.values()),
    "two_engines": lambda results: set(results["same text as on the CPU"].values()) == {True},
    "bundled": all_methods_agree,
}
"""The results that each check must have with a small shape on the CPU."""


@pytest.mark.parametrize("name", CHECKED)
def test_a_check_runs_with_a_small_shape(checklist, name, monkeypatch):
    monkeypatch.setattr("gpu_round_checks._NEW", 24)  # tokens of an answer
    results = checklist.checks()[name](True)
    assert json.dumps(results, default=str)
    assert CHECKED[name](results), results


def test_a_check_that_fails_or_hangs_ends_alone_and_is_repeated_when_resumed(
    checklist, tmp_path, monkeypatch
):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "name = sys.argv[2]\n"
        "if name == 'hangs': time.sleep(60)\n"
        "if name == 'fails': sys.exit('an illegal memory access')\n"
        "print('RESULT {\"figure\": 1}')\n"
    )
    monkeypatch.setattr(checklist, "__file__", str(program))
    names = ["hangs", "fails", "works"]
    results = checklist.run_checklist(names, tmp_path, tiny=True, limit_s=3.0)
    assert results["hangs"]["failed"] == "took longer than 3 s"
    assert "an illegal memory access" in results["fails"]["failed"]
    assert results["works"]["figure"] == 1
    program.write_text("print('RESULT {\"figure\": 2}')\n")
    results = checklist.run_checklist(names, tmp_path, tiny=True, resume=True)
    assert [results[name]["figure"] for name in names] == [2, 2, 1]
    assert json.loads((tmp_path / "gpu_checklist.json").read_text()) == results


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
