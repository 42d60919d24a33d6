"""Budgets: limits on the cost or tokens of calls, and the notices that they are nearly used up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple, get_args

from specclient.errors import ConfigurationError
from specclient.types.usage import NANO

__all__ = ["THRESHOLDS", "Budget", "BudgetNotice", "BudgetScope"]

BudgetPeriod = Literal["total", "day", "month"]
BudgetMode = Literal["hard", "soft"]
UnpricedRule = Literal["allow", "refuse"]

#: The percentages of a limit at which ``notify`` is called.
THRESHOLDS = (50, 80, 100)
#: 64-bit integers of the database hold this many nano-dollars, with room to spare.
_MOST_USD = Decimal(10) ** 9
_MOST_TOKENS = 10**18
_WORDS: Mapping[str, tuple[str, ...]] = {
    "period": get_args(BudgetPeriod),
    "mode": get_args(BudgetMode),
    "unpriced": get_args(UnpricedRule),
}


class BudgetScope(NamedTuple):
    """The properties of a call that determine which budgets count it.

    Attributes:
        provider: the provider that serves the call.
        models: the names of its model: the route, and the name that is sent.
        tags, session: as the caller gave them.
        by_judge: whether the answer judge makes the call. A caller cannot set it.
    """

    provider: str
    models: tuple[str, ...]
    tags: Mapping[str, str]
    session: str | None
    by_judge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on the cost or the tokens of calls in a period. It counts the calls that match all its filters.

    Attributes:
        name: the budget's name. Clients with the same ledger and the same budget name share the budget.
        usd: the limit in US dollars; ``tokens``: the limit in tokens of prompt and answer. Give one of them.
        period: ``day``, ``month`` (both in UTC), or ``total``, which never ends.
        provider: count only calls served by this provider.
        model: count only calls of this route (``openai/gpt-4.1``) or model (``gpt-4.1``); a ``*`` at the end
            matches any ending (``openai/gpt-4.1*``).
        tag: count only calls with this tag, ``name=value``; for ``name=*``, each value has its own limit.
        session: count only calls of this session; for ``*``, each session has its own limit.
        judge: count only calls by which the answer judge scores answers.
        mode: ``hard`` refuses a call that could exceed the limit, before it is sent; ``soft`` only notifies.
        unpriced: how a limit in dollars treats models without a price: ``allow`` counts their calls as 0 and
            warns; ``refuse`` refuses them, and calls whose cost has no upper bound, if the mode is ``hard``.
        notify: called with a :class:`BudgetNotice` once when 50, 80 and 100 % are reached, in the process
            whose call reached it, in a thread, before the call returns.

    Raises:
        ConfigurationError: a value is invalid; the message names it and what is allowed.
    """

    name: str
    usd: Decimal | float | str | None = None
    tokens: int | None = None
    period: BudgetPeriod = "total"
    provider: str | None = None
    model: str | None = None
    tag: str | None = None
    session: str | None = None
    judge: bool = False
    mode: BudgetMode = "hard"
    unpriced: UnpricedRule = "allow"
    notify: Callable[[BudgetNotice], object] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(f"a budget's name is {self.name!r}; it must be a text")
        if (self.usd is None) == (self.tokens is None):
            raise self._wrong("one of usd and tokens", "must be given, and not both")
        if self.usd is not None:
            object.__setattr__(self, "usd", self._dollars(self.usd))
        elif isinstance(self.tokens, bool) or not isinstance(self.tokens, int):
            raise self._wrong("tokens", f"is {self.tokens!r}; it must be a whole number")
        elif not 0 < self.tokens <= _MOST_TOKENS:
            raise self._wrong("tokens", f"is {self.tokens}; it must be 1 or more")
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise self._wrong(name, f"is {getattr(self, name)!r}; it must be one of {', '.join(words)}")
        for name in ("provider", "model", "tag", "session"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise self._wrong(name, f"is {value!r}; it must be a text")
        if not isinstance(self.judge, bool):
            raise self._wrong("judge", f"is {self.judge!r}; it must be true or false")
        if self.tag is not None and not all(self.tag.partition("=")):
            raise self._wrong("tag", f"is {self.tag!r}; write 'name=value', or 'name=*' for each value")
        if self.model is not None and "*" in self.model[:-1]:
            raise self._wrong("model", f"is {self.model!r}; a '*' is allowed only at its end")

    def _dollars(self, given: Any) -> Decimal:
        try:
            usd = Decimal(str(given))
        except InvalidOperation:
            usd = Decimal("nan")
        if isinstance(given, bool) or not (usd.is_finite() and 0 < usd <= _MOST_USD):
            raise self._wrong("usd", f"is {given}; it must be a number of dollars above 0")
        return usd

    def _wrong(self, field_: str, text: str) -> ConfigurationError:
        return ConfigurationError(f"budgets.{self.name}: {field_} {text}")

    @property
    def limit(self) -> int:
        """The limit in nano-dollars, or in tokens."""
        return int(Decimal(str(self.usd)) * NANO) if self.tokens is None else self.tokens

    @property
    def per_subject(self) -> bool:
        """Whether each value of a tag, or each session, has its own limit."""
        return self.session == "*" or (self.tag is not None and self.tag.endswith("=*"))

    def subject(self, scope: BudgetScope) -> str | None:
        """Return the key of the limit that counts a call: empty for a single limit; None if none does."""
        if self.judge and not scope.by_judge:
            return None
        if self.provider is not None and self.provider != scope.provider:
            return None
        if self.model is not None and not any(map(self._fits, scope.models)):
            return None
        own: list[str] = []
        if self.tag is not None:
            name, _, value = self.tag.partition("=")
            given = scope.tags.get(name)
            if given is None or value not in ("*", given):
                return None
            own += [f"{name}={given}"] if value == "*" else []
        if self.session is not None:
            if scope.session is None or self.session not in ("*", scope.session):
                return None
            own += [f"session {scope.session}"] if self.session == "*" else []
        return ", ".join(own)

    def _fits(self, model: str) -> bool:
        assert self.model is not None
        return model.startswith(self.model[:-1]) if self.model.endswith("*") else model == self.model

    def format_amount(self, amount: int) -> str:
        """Return an amount in the budget's unit as text: ``$5.00`` or ``1,000 tokens``."""
        return f"{amount:,} tokens" if self.usd is None else exact_dollars(amount)


def exact_dollars(nano: int) -> str:
    """Return nano-dollars as exact dollars with at least two decimals: ``$5.00``, ``$0.00000025``."""
    whole, part = divmod(abs(nano), 10**9)
    return f"{'-' if nano < 0 else ''}${whole:,}.{f'{part:09}'.rstrip('0'):0<2}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNotice:
    """The notice that a part of a budget is used.

    Attributes:
        budget: the budget.
        percent: 50, 80 or 100.
        spent, limit: in US dollars or tokens, as the budget counts.
        subject: the tag value or session, if each has its own limit; else empty.
        period: ``total``, the day (``2026-01-31``) or the month (``2026-01``).
        resets_at: the start of the next period; None for ``total``.
    """

    budget: Budget
    percent: int
    spent: Decimal | int
    limit: Decimal | int
    subject: str
    period: str
    resets_at: datetime | None
