"""Aliases of models: other names under which callers may request a model."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from specclient.errors import ConfigurationError

__all__ = ["LONGEST_NAME", "ModelAliases"]

#: Maximum characters of the name of a model in a request, and of one that look-ups remember.
LONGEST_NAME = 512
#: Names whose model is remembered; names come from requests.
_MOST = 1024
_WILDCARDS = frozenset("*?[")
_AUTO = "auto"


class ModelAliases:
    """A table of aliases, checked for names that cannot be resolved.

    An alias is a model's name or a pattern with ``*``, ``?`` or ``[…]``. An exact name precedes patterns, and
    a longer pattern precedes a shorter one. Its target may be the exact name of another alias. Patterns match
    only names that callers write, so ``"*"`` is no alias of its own target.

    Args:
        table: the target of each alias: ``provider/model``, ``auto``, or a name without a provider.

    Raises:
        ConfigurationError: an alias is empty or ``auto``, its target is empty or a pattern, or aliases are a
            cycle. The message names the alias.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        for alias, target in table.items():
            _check(alias, target)
        self._exact = {alias: target for alias, target in table.items() if not _is_pattern(alias)}
        patterns = [(alias, target) for alias, target in table.items() if _is_pattern(alias)]
        self._patterns = sorted(patterns, key=lambda each: -len(each[0]))
        self._table = dict(table)
        self._known: dict[str, str] = {}
        for alias, target in table.items():
            self._follow(alias, target)

    @property
    def table(self) -> Mapping[str, str]:
        """The aliases with their targets, as given."""
        return self._table

    @property
    def names(self) -> tuple[str, ...]:
        """The aliases that are no patterns."""
        return tuple(self._exact)

    def target(self, model: str) -> str:
        """Return the model that a name stands for; the name itself if it is no alias."""
        if not model:
            return model  # the provider has a default of its own
        known = self._known.get(model)
        if known is None:
            known = self._look_up(model)
            if len(model) <= LONGEST_NAME:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[model] = known
        return known

    def exact_target(self, model: str) -> str:
        """Return the model that an exact alias stands for, whatever patterns match; else the name itself."""
        return self._follow(model, self._exact[model]) if model in self._exact else model

    def _look_up(self, model: str) -> str:
        target = self._exact.get(model)
        if target is None:
            matching = (target for pattern, target in self._patterns if fnmatchcase(model, pattern))
            target = next(matching, None)
        return model if target is None else self._follow(model, target)

    def _follow(self, alias: str, target: str) -> str:
        """Return the end of a chain of exact aliases."""
        seen = [alias]
        while target in self._exact:
            if target in seen:
                chain = " -> ".join(repr(name) for name in (*seen, target))
                raise ConfigurationError(f"alias {alias!r} leads back to itself: {chain}; name a model")
            seen.append(target)
            target = self._exact[target]
        return target


def _check(alias: str, target: str) -> None:
    if not alias or alias == _AUTO:
        raise ConfigurationError(
            f"alias {alias!r} for {target!r} is not allowed: an alias has a name, and 'auto' already stands "
            "for the candidates"
        )
    if not target or _is_pattern(target):
        raise ConfigurationError(
            f"alias {alias!r} is for {target!r}; it must be for one model, such as 'local/demo', without "
            "'*', '?' and '['"
        )


def _is_pattern(name: str) -> bool:
    return not _WILDCARDS.isdisjoint(name)
