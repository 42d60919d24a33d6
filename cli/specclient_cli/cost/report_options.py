"""Options shared by the commands of ``specclient cost``: groups, times, filters and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from specclient.errors import ConfigurationError
from specclient.reports.groups import group_readers
from specclient.reports.reader import CallFilter
from specclient.reports.report import GROUPS, parse_since
from specclient_cli.common import options, parameter_types, render


class GroupKeys(parameter_types.ParameterType):
    """Comma-separated names to group by.

    Args:
        more: further allowed names; the others are in :data:`specclient.reports.report.GROUPS`.
    """

    name = "names"

    def __init__(self, more: tuple[str, ...] = ()) -> None:
        self._more = more

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        if len(names) == 1 and names[0] in self._more:
            return tuple(names)
        try:
            group_readers(names)
        except ConfigurationError as error:
            also = f"; or only {' or '.join(self._more)}" if self._more else ""
            self.fail(f"{error}{also}.", param, ctx)
        return tuple(names)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",")
        names = [name for name in (*self._more, *GROUPS, "tag:") if name.startswith(last)]
        return [CompletionItem(f"{done}{comma}{name}") for name in names]


class PastTime(parameter_types.ParameterType):
    """A point in time, or a duration before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        try:
            return parse_since(str(value), datetime.now(UTC))
        except ConfigurationError as error:
            self.fail(f"{error}.", param, ctx)


def by_option(
    *,
    default: str,
    more: tuple[str, ...] = (),
    help: str = "Group by",
) -> Callable[[options.F], options.F]:
    """Add ``--by``.

    Args:
        more: as in :class:`GroupKeys`.
        help: the beginning of the help text, before the names to group by; it explains those in ``more``.
    """
    return click.option(
        "--by",
        type=GroupKeys(more),
        default=default,
        show_default=True,
        help=f"{help} {', '.join(GROUPS)} or tag:NAME, separated by commas.",
    )


def filter_options(function: options.F) -> options.F:
    """Add the options that select calls; :func:`call_filter` reads them."""
    for option in reversed(
        [
            click.option(
                "--since",
                type=PastTime(),
                help="Only calls since this time: 7d, 24h, 2026-01-31, or ISO 8601.",
            ),
            click.option("--until", type=PastTime(), help="Only calls before this time."),
            click.option(
                "--provider", type=parameter_types.ProviderName(), help="Only calls served by this provider."
            ),
            click.option(
                "--model",
                type=parameter_types.ModelName(),
                help="Only calls of this model, PROVIDER/MODEL or MODEL.",
            ),
            options.tag_option("Only calls with this tag; may be repeated."),
        ]
    ):
        function = option(function)
    return function


def call_filter(given: Mapping[str, Any]) -> CallFilter:
    """Return the filter given by the options of :func:`filter_options`."""
    return CallFilter(
        since=given["since"],
        until=given["until"],
        provider=given["provider"],
        model=given["model"],
        tags=dict(given["tags"]),
    )


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write instead of stdout.",
)


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a file for writing. It replaces an existing file only once it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise click.UsageError(
            f"cannot write {path}: {error.strerror}; choose another file with -o."
        ) from None
    finally:
        with suppress(OSError):  # the error above is the one to report
            part.unlink(missing_ok=True)


def write_output(path: Path | None, text: str) -> None:
    """Write text to a file, or to stdout if ``path`` is None."""
    if path is None:
        click.echo(text, nl=False)
        return
    with open_output(path) as file:
        file.write(text)


def one_line(text: str) -> str:
    """Return untrusted text as one printable line."""
    return render.printable(text.replace("\n", " ").replace("\t", " "))
