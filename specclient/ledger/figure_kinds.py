"""Kinds of figures of the totals: sums, histograms, and values computed from them.

A figure is a descriptor: ``totals.tokens_in`` reads the figure ``tokens_in`` of some totals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Computed", "CountOrNone", "Counted", "Figure", "Flag", "Histogram", "ReportText", "Sum", "Summer"]

T_co = TypeVar("T_co", covariant=True)

#: Computes sums over rows, given a sequence of columns, each a sequence of the values in all rows.
Summer = Callable[[Sequence[Sequence[Any]]], Sequence[int]]
#: Returns what one row adds to the sums.
Reader = Callable[[Sequence[Any]], Sequence[int]]


class Totals(Protocol):
    """The class that has figures; see :class:`specclient.ledger.figures.CallTotals`."""

    @property
    def sums(self) -> Mapping[str, int]:
        """The sums of a group, by column name."""
        ...


class ReportText(NamedTuple):
    """How a report shows a figure as text.

    Attributes:
        title: heading of its column.
        form: how the value is written, see :data:`specclient.reports.text.FORMS`.
        place: orders the columns from left to right; equal places are in the order of the figures. A new
            column takes a fraction between its neighbours' places, such as 3.5, so that none is renumbered.
        rank: columns of the highest rank are omitted first if there is no room; 0 never is.
        always: show the column even where the report's total is zero or unknown.
    """

    title: str
    form: Literal["count", "percent", "decimal", "rate", "latency", "dollars", "cost"]
    place: float
    rank: int
    always: bool = False


class _Descriptor(Generic[T_co]):
    """A named value, read as an attribute of the totals."""

    #: Set by the class that has the figure.
    name: str

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, totals: None, owner: type) -> Self: ...
    @overload
    def __get__(self, totals: Totals, owner: type) -> T_co: ...
    def __get__(self, totals: Totals | None, owner: type) -> Any:
        return self if totals is None else self.read(totals)

    def read(self, totals: Totals) -> T_co:
        """Return the value for a group, given its totals."""
        raise NotImplementedError


class Figure(_Descriptor[T_co]):
    """A figure of a group of calls that can be added up over rows, and so has columns in ``calls_by_hour``.

    Args:
        columns: names of the columns of ``calls`` that it is computed from.
        of: returns what one row adds, given the row's values of these columns, as a whole number; None is 0.
            By default the value of the one column. In rows of SQLite flags are 0 and 1.
        since: the schema version that added it. A new figure takes the version after
            :data:`specclient.ledger.schema.SCHEMA_VERSION`.
        text: its column in reports, if it has one.
        exported: whether it is in the CSV and JSON of reports.
    """

    def __init__(
        self,
        *columns: str,
        of: Callable[..., int | None] | None = None,
        since: int,
        text: ReportText | None = None,
        exported: bool = True,
    ) -> None:
        if of is None and len(columns) != 1:
            raise ValueError(f"a figure of the columns {columns!r} needs a function `of` of their values")
        self.columns = columns
        self.of = of
        self.since = since
        self.text = text
        self.exported = exported

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of its columns in ``calls_by_hour``."""
        return (self.name,)

    def summer(self, places: Sequence[int]) -> Summer:
        """Return the function that computes the sums over rows, one per name of ``sum_names``.

        Args:
            places: for each of ``columns``, its place in the argument of the function.
        """
        of, first = self.of, places[0]
        if of is None:
            return lambda values: (sum(filter(None, values[first])),)
        if len(places) == 1:
            return lambda values: (sum(filter(None, map(of, values[first]))),)
        return lambda values: (sum(filter(None, map(of, *[values[place] for place in places]))),)

    def reader(self, places: Sequence[int]) -> Reader:
        """Return the function that returns what a single row adds: faster than a sum over one row.

        A flag adds 1, not True: PostgreSQL does not convert truth values to numbers.

        Args:
            places: for each of ``columns``, its place in the row.
        """
        of, values = self.of, itemgetter(*places)
        if of is None:
            return lambda row: (values(row) or 0,)
        if len(places) == 1:
            return lambda row: (int(of(values(row)) or 0),)
        return lambda row: (int(of(*values(row)) or 0),)


class Sum(Figure[int]):
    """A sum over rows; a row whose value is unknown adds 0."""

    def read(self, totals: Totals) -> int:
        """Return the sum."""
        return totals.sums[self.name]


class Counted(Sum):
    """A sum over rows of a count in ``Call.counts``, stored in a column of ``calls`` of its own.

    Figure, count and column have one name. :class:`specclient.call.answer_counts.AnswerCounter` fills the
    count; the column holds NULL for a call without it.

    Args:
        since: the schema version that added the figure and its column.
        text, exported: as in :class:`Figure`.
    """

    def __init__(self, *, since: int, text: ReportText | None = None, exported: bool = True) -> None:
        super().__init__("", since=since, text=text, exported=exported)

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.columns = (name,)


class CountOrNone(Figure["int | None"]):
    """A sum that is None, rather than 0, if no row knows a value.

    Args:
        known: name of the figure that counts the rows with a known value.
    """

    def __init__(self, *columns: str, known: str, **options: Any) -> None:
        super().__init__(*columns, **options)
        self.known = known

    def read(self, totals: Totals) -> int | None:
        """Return the sum, None if no row knows a value."""
        return totals.sums[self.name] if totals.sums[self.known] else None


class Flag(Figure[bool]):
    """Whether a condition holds for any row; ``calls_by_hour`` counts the rows."""

    def read(self, totals: Totals) -> bool:
        """Return whether there is such a row."""
        return totals.sums[self.name] > 0


class Histogram(Figure["tuple[int, ...]"]):
    """Numbers of rows by class of a value, in columns ``NAME_0``, ``NAME_1`` and so on.

    Args:
        edges: upper edges of the classes, ascending; the last class, above them all, has none.
        of: returns a row's value, None if it is in no class.
    """

    def __init__(self, *columns: str, edges: Sequence[int], **options: Any) -> None:
        super().__init__(*columns, **options)
        self.edges = edges

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of its columns in ``calls_by_hour``, one per class."""
        return tuple(f"{self.name}_{k}" for k in range(len(self.edges) + 1))

    def summer(self, places: Sequence[int]) -> Summer:
        """Return the function that counts the rows in each class."""
        of, edges = self.of or (lambda value: value), self.edges

        def count(values: Sequence[Sequence[Any]]) -> list[int]:
            counts = [0] * (len(edges) + 1)
            for value in map(of, *[values[place] for place in places]):
                if value is not None:
                    counts[bisect_left(edges, value)] += 1
            return counts

        return count

    def reader(self, places: Sequence[int]) -> Reader:
        """Return the function that counts one row."""
        count = self.summer(range(len(places)))
        return lambda row: count([(row[place],) for place in places])

    def read(self, totals: Totals) -> tuple[int, ...]:
        """Return the numbers by class."""
        return tuple(totals.sums[name] for name in self.sum_names)


class Computed(_Descriptor[T_co]):
    """A figure that is computed from the sums when it is read, and stored nowhere, such as a ratio.

    Args:
        of: returns the value, given the totals.
        text, exported: as in :class:`Figure`.
    """

    def __init__(
        self, of: Callable[[Any], T_co], *, text: ReportText | None = None, exported: bool = True
    ) -> None:
        self.of = of
        self.text = text
        self.exported = exported

    def read(self, totals: Totals) -> T_co:
        """Return the value for a group, given its totals."""
        return self.of(totals)
