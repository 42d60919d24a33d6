"""Progress of a training run: a bar on a terminal, else lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from specclient_cli.common import render


class StageProgress(Protocol):
    """The progress that a training run reports.

    Attributes:
        stage: name of the stage.
        done: number of finished steps of the stage.
        of: number of all steps of the stage.
        loss: mean loss of the last steps; None in stages without a loss.
        left_s: estimated seconds to the end of the stage; None if unknown.
    """

    @property
    def stage(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def of(self) -> int: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def left_s(self) -> float | None: ...


P = TypeVar("P", bound=StageProgress)


@contextmanager
def show_progress(
    stages: Mapping[str, str], figures: Callable[[P], str], log: Callable[[P], None]
) -> Iterator[Callable[[P], None]]:
    """Yield a function that shows the progress of a run.

    Args:
        stages: titles by name of the stage, in order.
        figures: returns the figures beside the bar.
        log: the function to yield if stderr is not a terminal.
    """
    screen = render.console(stderr=True)
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield log
        return
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - used only on a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"))
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(next(iter(stages.values())), figures="")

        def update(progress: P) -> None:
            bar.update(
                task,
                description=stages[progress.stage],
                completed=progress.done,
                total=progress.of,
                figures=figures(progress),
            )

        yield update


def progress_figures(progress: StageProgress, held_out: Sequence[str]) -> str:
    """Return steps, loss, results on held-out texts and the time left."""
    parts = [f"{progress.done}/{progress.of}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    parts += held_out
    if progress.left_s is not None:
        seconds = progress.left_s
        parts.append(f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left")
    return " · ".join(parts)
