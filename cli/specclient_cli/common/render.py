"""Terminal output: tables, paragraphs and live answers, fitted to the width; plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

#: Styles by purpose. Each differs from plain text by more than its colour, for NO_COLOR.
HEADING, DIM, GOOD, BAD, DRAFTED = "bold cyan", "dim", "bold green", "bold red", "bold green"
UNKNOWN = "–"

#: Smallest width of a column, in characters.
MIN_COLUMN_WIDTH = 6
#: Terminal width, in characters, from which panes are shown side by side; narrower ones stack them.
SIDE_BY_SIDE_WIDTH = 90
#: Seconds between two redraws of a running answer.
REDRAW_INTERVAL_S = 0.1


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr. It honours ``NO_COLOR`` and ``TERM=dumb``."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_paragraph(text: str = "", style: str = "", *, indent: int = 0, to: Console | None = None) -> None:
    """Print a paragraph, wrapped at words in a terminal, as one line in a pipe.

    Args:
        indent: spaces before each line.
    """
    to = to or console()
    if to.is_terminal:
        to.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False) if indent else Text(text, style))
    else:
        to.print(Text(" " * indent + text, style), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        title: the heading.
        right: whether cells are right-aligned, as numbers are.
        rank: in a narrow terminal, columns of the highest rank are left out first; rank 0 is always shown.
    """

    title: str
    right: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table.

    Attributes:
        cells: the text of each column.
        style: the style of the row.
        note: a remark, printed after the cells if all fit, otherwise on the lines below.
    """

    cells: Sequence[str]
    style: str = ""
    note: str = ""


def print_table(
    columns: Sequence[TableColumn], lines: Sequence[TableRow], *, to: Console | None = None
) -> None:
    """Print a table with as many columns as fit. Notes follow their row if they fit, else go below."""
    to = to or console()
    room = to.width if to.is_terminal else None
    widths = [
        max(cell_len(column.title), *(cell_len(line.cells[i]) for line in lines), 0)
        for i, column in enumerate(columns)
    ]
    shown = _fitting(columns, widths, room)
    if room is not None:
        _narrow(widths, shown, room)
    longest = max((cell_len(line.note) for line in lines), default=0)
    inline = room is None or (len(shown) == len(columns) and sum(widths) + 2 * len(widths) + longest <= room)
    heading = TableRow([column.title for column in columns], style=DIM)
    for line in (heading, *lines):
        row = "  ".join(_cell(line.cells[i], widths[i], right=columns[i].right) for i in shown)
        if line.note and inline:
            row += f"  {line.note}"
        to.print(Text(row.rstrip(), line.style), soft_wrap=True)
        if line.note and not inline:
            to.print(Padding(Text(line.note, DIM), (0, 0, 0, 4)))


def _fitting(columns: Sequence[TableColumn], widths: Sequence[int], room: int | None) -> list[int]:
    shown = list(range(len(columns)))
    while room is not None and sum(widths[i] for i in shown) + 2 * (len(shown) - 1) > room:
        last = max(shown, key=lambda i: (columns[i].rank, i))
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown


def _narrow(widths: list[int], shown: Sequence[int], room: int) -> None:
    """Shrink the widest columns until the row fits, to no less than ``MIN_COLUMN_WIDTH``."""
    while sum(widths[i] for i in shown) + 2 * (len(shown) - 1) > room:
        widest = max(shown, key=lambda i: widths[i])
        if widths[widest] <= MIN_COLUMN_WIDTH:
            break
        widths[widest] -= 1


def _cell(text: str, width: int, *, right: bool) -> str:
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1).rstrip() + "…"
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


#: Visible substitutes of control characters, so that a model's output cannot control the terminal.
_SUBSTITUTES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_SUBSTITUTES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    """Replace control characters in text by visible ones."""
    return text.translate(_SUBSTITUTES)


def print_answer(text: str) -> None:
    """Print a piece of an answer immediately; control characters are replaced in a terminal."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def spinner(text: str) -> AbstractContextManager[object]:
    """Show progress during a ``with`` block: a spinner in a terminal, a line in a pipe."""
    screen = console()
    if _animates(screen):
        return screen.status(Text(text, DIM))
    print_paragraph(text, to=screen)
    return nullcontext()


@dataclass(slots=True)
class AnswerPane:
    """The text of one answer of :class:`AnswerPanes`.

    Attributes:
        title: the line above the text.
        text: the text so far.
        footer: the line below it, set when the answer is complete.
    """

    title: str
    text: Text = field(default_factory=Text)
    footer: str = ""

    def tail(self, screen: Console, width: int, height: int) -> RenderableType:
        """Return the title, the last ``height`` lines of text, and the footer."""
        lines = self.text.wrap(screen, width, tab_size=4, no_wrap=False)
        shown = Text("\n").join(list(lines)[-height:])
        return Group(Text(self.title, HEADING), shown, Text(self.footer, DIM))


class AnswerPanes:
    """Shows answers as they arrive: live and side by side in a terminal, one after the other in a pipe.

    Args:
        titles: one for each pane.
        clock: monotonic seconds.
    """

    def __init__(self, titles: Sequence[str], clock: Callable[[], float]) -> None:
        self._panes = [AnswerPane(title) for title in titles]
        self._clock = clock
        self._screen = console()
        self._live = (
            Live(console=self._screen, auto_refresh=False, transient=True, vertical_overflow="crop")
            if _animates(self._screen)
            else None
        )
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Print the complete panes, which may be higher than the screen."""
        if self._live is not None:
            self._live.stop()
            self._screen.print(self._layout(None))

    def begin(self, index: int, text: str) -> None:
        """Start an answer with the prompt that it continues."""
        if self._live is None:
            print_answer(f"{self._panes[index].title}\n{text}")
        self._panes[index].text.append(printable(text), DIM)
        self._draw(force=True)

    def add(self, index: int, segments: Iterable[tuple[str, bool]]) -> None:
        """Append text to an answer. Each segment says whether its text was drafted and accepted."""
        for text, drafted in segments:
            self._panes[index].text.append(printable(text), DRAFTED if drafted else "")
            if self._live is None:
                print_answer(text)
        self._draw()

    def end(self, index: int, footer: str) -> None:
        """End an answer and show its footer."""
        self._panes[index].footer = footer
        if self._live is None:
            print_answer(f"\n{footer}\n\n")
        self._draw(force=True)

    def _draw(self, *, force: bool = False) -> None:
        if self._live is None or (not force and self._clock() - self._drawn < REDRAW_INTERVAL_S):
            return
        self._drawn = self._clock()
        self._live.update(self._layout(self._screen.height - 2), refresh=True)

    def _layout(self, height: int | None) -> RenderableType:
        """Return all panes in ``height`` lines; None means as many lines as they need."""
        wide = self._screen.width >= SIDE_BY_SIDE_WIDTH
        count = 1 if wide else len(self._panes)
        rows = 10**6 if height is None else max(height // count - 4, 1)
        width = (self._screen.width - 3 * (len(self._panes) - 1)) // len(self._panes) if wide else None
        panes = [pane.tail(self._screen, width or self._screen.width, rows) for pane in self._panes]
        if not wide:
            return Group(*_between(panes, Text("")))
        table = Table.grid(padding=(0, 1), expand=True)
        for i, _ in enumerate(panes):
            if i:
                table.add_column(width=1)
            table.add_column(width=width)
        table.add_row(*_between(panes, Text("")))
        return table


def _between(items: Sequence[RenderableType], gap: RenderableType) -> list[RenderableType]:
    return [part for i, item in enumerate(items) for part in ((gap, item) if i else (item,))]


def print_legend() -> None:
    """Print the legend of :class:`AnswerPanes`, in a terminal only."""
    screen = console()
    if _animates(screen):
        mark = Text("drafted and accepted", DRAFTED)
        screen.print(Text(" · ").join([mark, Text("the target's own"), Text("prompt", DIM)]))
        screen.print()


def _animates(screen: Console) -> bool:
    return screen.is_terminal and not screen.is_dumb_terminal
