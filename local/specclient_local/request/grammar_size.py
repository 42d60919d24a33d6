"""The size of a grammar, and the error for one that exceeds a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specclient.errors import BadRequestError
from specclient.types.request_limits import RequestLimits

SMALL_BYTES = 8 * 2**10
"""Maximum size of a small grammar; see :attr:`GrammarSize.small`."""

SMALL_WEIGHT = 256
"""Maximum weight of a small grammar; see :attr:`GrammarSize.small`."""

_SMALL_REPETITIONS = 1000
_SMALL_COMPLEMENTS = 2
_SMALL_PATTERNS = 8


@dataclass(frozen=True, slots=True)
class GrammarSize:
    """The size of a grammar.

    Attributes:
        bytes, rules, nesting, chain, alternatives, repetitions: the sizes that the limits of the same names
            in :class:`specclient.types.request_limits.RequestLimits` bound.
        weight: the number of characters that can begin a level of the compiler's recursion: brackets, line
            ends and other separators of rules, and ``$ref``. All occurrences in the text count, whatever they
            mean there, so that the weight is never too small.
        complements: number of operators that intersect or negate languages; the compiler's work may grow
            exponentially with it.
        patterns: number of ``patternProperties``; the compiler compares each pair of them.
    """

    bytes: int
    rules: int = 0
    nesting: int = 0
    chain: int = 0
    alternatives: int = 0
    repetitions: int = 0
    weight: int = 0
    complements: int = 0
    patterns: int = 0

    @property
    def small(self) -> bool:
        """Whether the size alone guarantees that the compiler neither overflows the stack nor takes long.

        A level of recursion needs a character that ``weight`` counts, and takes less than 16 KiB of stack;
        ``SMALL_WEIGHT`` levels take less than half of the smallest stack that threads usually have. The
        compiler itself bounds most of its other work ("fuel"); the other limits here bound the rest.
        """
        return (
            self.bytes <= SMALL_BYTES
            and self.weight <= SMALL_WEIGHT
            and self.repetitions <= _SMALL_REPETITIONS
            and self.complements <= _SMALL_COMPLEMENTS
            and self.patterns <= _SMALL_PATTERNS
        )


_UNITS = {
    "bytes": "bytes",
    "rules": "rules",
    "nesting": "brackets within each other",
    "chain": "rules that refer to one another in a chain",
    "alternatives": "alternatives in a list",
    "repetitions": "repetitions",
}


def check_limit(name: str, field: str, value: int, limits: RequestLimits) -> None:
    """Check one size of a grammar.

    Args:
        name: the request's parameter.
        field: the size, a field of :class:`GrammarSize`.
        value: its value.
        limits: the limits.

    Raises:
        BadRequestError: the value is above the limit of that size.
    """
    limit: int = getattr(limits, f"grammar_{field}")
    if value > limit:
        raise grammar_too_large(
            name,
            f"has {value} {_UNITS[field]}; allowed are at most {limit}: make it simpler, "
            f"or raise grammar_{field} in [server.requests]",
        )


def grammar_too_large(name: str, reason: str) -> BadRequestError:
    """Return (not raise) the error for a grammar that is not compiled because of its size.

    Args:
        name: the request's parameter.
        reason: the rest of the sentence that begins with the name, without the full stop.
    """
    error = BadRequestError(f"{name} {reason}.")
    error.param, error.code = name, "grammar_too_large"
    return error


def too_deep(name: str) -> BadRequestError:
    """Return (not raise) the error for JSON that Python cannot read or write for its nesting."""
    return grammar_too_large(name, "has more objects and arrays within each other than Python can read")


def longest_chain(links: Mapping[Any, Iterable[Any]]) -> int:
    """Return an upper bound of the number of nodes on a path that visits no node twice.

    Nodes that reach each other form a component, and all nodes of a component count. Components are found by
    Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972) without recursion. It
    completes a component after all those that the component refers to.

    Args:
        links: the nodes that each node refers to, by node; nodes without an entry are ignored.
    """
    order: dict[Any, int] = {}
    low: dict[Any, int] = {}
    length: dict[Any, int] = {}
    path: list[Any] = []
    for root in links:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        path.append(root)
        todo: list[tuple[Any, Iterator[Any]]] = [(root, iter(links[root]))]
        while todo:
            node, rest = todo[-1]
            for other in rest:
                if other not in links:
                    continue
                if other not in order:
                    order[other] = low[other] = len(order)
                    path.append(other)
                    todo.append((other, iter(links[other])))
                    break
                if other not in length:
                    low[node] = min(low[node], order[other])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[node])
                if low[node] == order[node]:
                    _complete(path, node, links, length)
    return max(length.values(), default=0)


def _complete(path: list[Any], node: Any, links: Mapping[Any, Iterable[Any]], length: dict[Any, int]) -> None:
    """Remove a component from the path and note the length of the longest chain from it."""
    begin = len(path) - 1
    while path[begin] != node:
        begin -= 1
    component: Sequence[Any] = path[begin:]
    del path[begin:]
    further = max((length.get(other, 0) for each in component for other in links[each]), default=0)
    for each in component:
        length[each] = len(component) + further
