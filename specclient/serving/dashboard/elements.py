"""Elements of the dashboard as values for JSON, from which the page makes HTML elements.

The page sets texts as text and never parses them, so a name in the ledger cannot inject markup. Only a chart
is markup, and :mod:`specclient.reports.page.charts` escapes the texts in it. ``assets/dom.js`` reads this
form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = [
    "Column",
    "Content",
    "PageElement",
    "cell",
    "chart",
    "data",
    "details",
    "element",
    "local_time",
    "nothing",
    "number_column",
    "table",
]


class PageElement(NamedTuple):
    """One element.

    Attributes:
        tag: its HTML tag; ``chart`` for markup.
        attributes: its HTML attributes; True is one without a value.
        children: texts and elements inside.
    """

    tag: str
    attributes: dict[str, str | bool]
    children: tuple[str | PageElement, ...]


#: A text or an element.
Content: TypeAlias = str | PageElement


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: its heading.
        kind: CSS class of the heading; "" is none.
    """

    title: str
    kind: str = ""


def element(tag: str, attributes: Mapping[str, str | bool], *children: Content) -> PageElement:
    """Return an element; attributes whose value is "" or False are left out."""
    return PageElement(tag, {name: value for name, value in attributes.items() if value}, children)


def chart(markup: str) -> PageElement:
    """Return a chart.

    Args:
        markup: the result of a function of :mod:`specclient.reports.page.charts`, or "".
    """
    return PageElement("chart", {}, (markup,))


def nothing(text: str) -> PageElement:
    """Return a paragraph that replaces missing figures."""
    return element("p", {"class": "nothing"}, text)


def data(value: object, text: str, name: str = "") -> PageElement:
    """Return a figure: its text for readers, its exact value in an attribute, and perhaps an ``id``."""
    return PageElement("data", {"value": str(value), **({"id": name} if name else {})}, (text,))


def local_time(moment: str) -> PageElement:
    """Return a time of day, which the page writes in the time zone of its reader.

    Args:
        moment: ISO 8601, with the time zone.
    """
    return PageElement("time", {"datetime": moment}, ())


def details(key: str, summary: PageElement, *content: Content) -> PageElement:
    """Return content that the reader can open; it stays open when its section is drawn again.

    Args:
        key: identifies it on the page.
        summary: a ``<summary>``.
        content: shown while it is open.
    """
    return element("details", {"data-key": key}, summary, *content)


def number_column(title: str, kind: str = "number") -> Column:
    """Return a column whose heading is aligned as numbers are."""
    return Column(title, kind)


def cell(content: Content, kind: str = "number") -> PageElement:
    """Return a cell of a table; ``kind`` is its CSS class."""
    return element("td", {"class": kind}, content)


def table(caption: str, columns: Sequence[Column], rows: Sequence[PageElement]) -> PageElement:
    """Return a table.

    Args:
        caption: the accessible name, which is not visible.
        columns: its columns.
        rows: its ``<tr>`` elements.
    """
    heads = (element("th", {"scope": "col", "class": column.kind}, column.title) for column in columns)
    return element(
        "table",
        {},
        element("caption", {"class": "hidden"}, caption),
        element("thead", {}, element("tr", {}, *heads)),
        element("tbody", {}, *rows),
    )
