"""The recipe from source text to a loadable pair, and resuming interrupted training."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch
from specclient_local import Engine
from specclient_local.model.config import BUNDLED
from specclient_local.training import model_card
from specclient_local.training.bundled_distillation import greedy_agreement
from specclient_local.training.recipe import BundledPairRecipe, make_bundled_pair
from specclient_local.training.training_loop import TrainingSchedule, train
from torch import nn

TINY = BundledPairRecipe(
    vocab=400,
    target=(2, 32, 2, 64),
    draft=(1, 16, 2, 32),
    target_schedule=TrainingSchedule(steps=3, lr=1e-3, warmup=1),
    draft_schedule=TrainingSchedule(steps=3, lr=1e-3, warmup=1),
    continuations=16,
    polish_schedule=TrainingSchedule(steps=2, lr=1e-3, warmup=1),
    polish_continuations=16,
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("Lib")
    for name in ("queue", "fnmatch", "glob", "bisect", "heapq", "textwrap", "shlex", "string"):
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", folder)
    return folder


def test_the_recipe_makes_a_pair_that_the_engine_runs(library: Path, tmp_path: Path) -> None:
    figures = make_bundled_pair(TINY, tmp_path / "out", tmp_path / "work", library)
    assert figures["modules"] == {"train": 5, "heldout": 3}
    assert figures["target"]["parameters"] > figures["draft"]["parameters"]
    assert 0 <= figures["greedy"]["first_accepted"] <= 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{figures['target']['heldout_loss']}" in card
    assert json.loads((tmp_path / "out" / "target" / "config.json").read_text())["vocab_size"] == 400
    with Engine.load(tmp_path / "out" / "target", tmp_path / "out" / "draft", threads=1) as engine:
        r = engine.generate("def f(x):", max_tokens=8, temperature=0)
    assert r.token_ids
    again = make_bundled_pair(TINY, tmp_path / "again", tmp_path / "work", library)
    assert again == figures, "finished steps are not repeated"


def test_the_bundled_card_has_the_wording_of_the_template() -> None:
    card, _, _ = (BUNDLED / "README.md").read_text(encoding="utf-8").partition("\n## ")
    words = re.split(r"\{[^}]+\}", model_card._CARD)
    assert re.fullmatch(".+?".join(map(re.escape, words)), card)


class _LinearModel(nn.Module):
    """A linear model, small enough for a hundred training steps in a moment."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.zeros(4))


def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    schedule = TrainingSchedule(steps=150, lr=1e-2, warmup=5)

    def loss_of(model: _LinearModel, stop: int | None = None):
        def loss_at(step: int) -> torch.Tensor:
            if step == stop:
                raise KeyboardInterrupt
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            return ((x @ model.weight + model.bias - x.flip(1)) ** 2).mean()

        return loss_at

    whole = _LinearModel()
    lines: list[str] = []
    final = train(whole, schedule, loss_of(whole), report=lines.append)
    broken, path = _LinearModel(), tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        train(broken, schedule, loss_of(broken, stop=120), checkpoint=path, report=lines.append)
    resumed = _LinearModel()
    assert train(resumed, schedule, loss_of(resumed), checkpoint=path, report=lines.append) == pytest.approx(
        final
    )
    torch.testing.assert_close(resumed.weight, whole.weight)
    assert any("150/150" in line for line in lines)
    assert not path.with_suffix(".partial").exists()


def test_a_non_finite_loss_stops_the_run() -> None:
    model = _LinearModel()
    with pytest.raises(FloatingPointError, match="loss is nan at step 0"):
        train(model, TrainingSchedule(steps=2, lr=1e-3), lambda _: model.weight.sum() * float("nan"))


def test_greedy_agreement_counts_rounds_as_the_engine_does() -> None:
    class CountingModel(nn.Module):
        """Predicts the next of 0, 1, 2, …, but every fifth prediction is wrong."""

        def forward(self, input_ids: torch.Tensor, use_cache: bool) -> object:
            nxt = torch.where(input_ids % 5 == 4, 0, input_ids + 1)
            return type("Output", (), {"logits": nn.functional.one_hot(nxt, 64).float()})

    ids = torch.arange(30)[None]
    first, tokens = greedy_agreement(CountingModel(), ids, prompt=4, drafted=4)  # type: ignore[arg-type]
    # The same rounds, simulated one by one.
    rounds, at, accepted_first, won = 0, 4, 0, 0
    while at + 4 < 29:
        run = 0
        while run < 4 and (at + run) % 5 != 4:
            run += 1
        rounds, accepted_first, won, at = rounds + 1, accepted_first + (run > 0), won + run + 1, at + run + 1
    assert (first, tokens) == (accepted_first / rounds, won / rounds)
