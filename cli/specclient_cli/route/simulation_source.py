"""The source of the calls and hosts of ``specclient route simulate``: a trace, a world, or both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.routing.simulate.arrivals import Arrivals
    from specclient.routing.simulate.trace import Trace
    from specclient.routing.simulate.world import World
    from specclient_cli.common.state import State

__all__ = ["SimulationSource"]


class SimulationSource(NamedTuple):
    """The options that state which calls are simulated on which hosts, by their names on the command line.

    Attributes:
        trace: past calls, or a source of arrivals and lengths for ``world``.
        world: the name of a world of simulated hosts; None replays ``trace``.
        calls: the number of calls; None for the world's own, or all of the trace.
        stretch: the factor on the times of the trace in a world.
        skip_calls: so many calls at the beginning of the trace are left out in a world.
        skip_invalid: whether invalid lines of the trace are skipped, not refused.
        longest_gap: the most seconds between two calls of the trace.
        save: the file that the calls of a world are written to.
        seed: of the random numbers.
    """

    trace: Path | None
    world: str | None
    calls: int | None
    stretch: float | None
    skip_calls: int | None
    skip_invalid: bool
    longest_gap: float | None
    save: Path | None
    seed: int

    def check(self, *, warm: int) -> None:
        """Refuse options that do not fit together.

        Args:
            warm: the calls by which the routes of a world are measured first.

        Raises:
            UsageError: the message names the options, and what they need.
        """
        if self.trace is None and self.world is None:
            raise click.UsageError("Give a TRACE, --world NAME, or both.")
        if self.world is None and (self.save is not None or self.calls is not None or warm):
            raise click.UsageError("--save, --calls and --warm need --world.")
        of_trace = self.skip_invalid or any(
            each is not None for each in (self.stretch, self.skip_calls, self.longest_gap)
        )
        if (self.trace is None or self.world is None) and of_trace:
            raise click.UsageError(
                "--stretch, --skip-calls, --skip-invalid and --longest-gap need a TRACE and --world."
            )

    def scenario(self, state: State, settings: Settings) -> World | Trace:
        """Return the calls and hosts, and write them to ``save``; call :meth:`check` before.

        Args:
            state: of the command.
            settings: state which routes stay on this machine.
        """
        from specclient.routing.simulate.trace import dump_trace, load_trace  # noqa: PLC0415 - slow

        if self.world is None:
            assert self.trace is not None
            destinations = state.async_client(settings).router.destinations
            return load_trace(self.trace, seed=self.seed, is_local=destinations.stays_local)
        made = self._simulated(self.world)
        if self.save is not None:
            self.save.write_text("".join(dump_trace(made)), encoding="utf-8")
        return made

    def _simulated(self, name: str) -> World:
        """Return a world with its own calls, or with those of the trace."""
        from specclient.routing.simulate.world import WORLDS, World  # noqa: PLC0415 - slow

        if name not in WORLDS:
            raise click.UsageError(f"There is no world {name!r}; the worlds are: {', '.join(WORLDS)}.")
        arrivals = None if self.trace is None else self._arrivals(self.trace)
        return World(WORLDS[name], self.seed, calls=self.calls, arrivals=arrivals)

    def _arrivals(self, file: Path) -> Arrivals:
        """Return the calls of the trace; tell on stderr how many lines were skipped."""
        from specclient.routing.simulate.arrivals import read_arrivals  # noqa: PLC0415 - slow

        found = read_arrivals(
            file,
            stretch=self.stretch or 1.0,
            skip=self.skip_calls or 0,
            most=self.calls,
            skip_invalid=self.skip_invalid,
            longest_gap_s=self.longest_gap,
        )
        if found.skipped:
            lines = "1 line was" if len(found.skipped) == 1 else f"{len(found.skipped):,} lines were"
            click.echo(f"{lines} skipped or moved; the first: {found.skipped[0]}", err=True)
        return found
