"""A limit on what calls may cost or use, which calls it counts, and the word that it is being reached."""

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

#: Per cent of a limit at which there is word of it.
THRESHOLDS = (50, 80, 100)
#: What a database counts nano-dollars up to, with room to spare.
_MOST_USD = Decimal(10) ** 9
_MOST_TOKENS = 10**18
_WORDS: Mapping[str, tuple[str, ...]] = {
    "period": get_args(BudgetPeriod),
    "mode": get_args(BudgetMode),
    "unpriced": get_args(UnpricedRule),
}


class BudgetScope(NamedTuple):
    """What of a call decides which budgets count it.

    Attributes:
        provider: the endpoint that serves it.
        models: the names that its model goes by: the route, and as it is sent.
        tags, session: as the caller gave them.
    """

    provider: str
    models: tuple[str, ...]
    tags: Mapping[str, str]
    session: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What calls may cost, or use, in a period. Those are counted that fit everything that is given.

    Attributes:
        name: what it is known by; whatever shares a ledger and a budget's name shares the budget.
        usd: the limit in US dollars; ``tokens``: in tokens of prompt and answer. One of the two.
        period: ``day`` and ``month`` are of UTC; ``total`` never ends.
        provider: only calls that this endpoint serves.
        model: only calls of this route (``openai/gpt-4.1``) or model (``gpt-4.1``), or of all that begin
            with what stands before a ``*`` (``openai/gpt-4.1*``).
        tag: only calls with this label, ``name=value``; with ``name=*`` each value has the limit to itself.
        session: only calls of this ``session``; with ``*`` each session has the limit to itself.
        mode: ``hard`` refuses a call that may not fit, before it is sent; ``soft`` only tells.
        unpriced: what a limit in dollars does about a model without a price: ``allow`` counts its calls as
            nothing, with a warning, ``refuse`` refuses them where the budget is hard.
        notify: called with a :class:`BudgetNotice`, once each time that 50, 80 and 100 % are reached, by the
            one process whose call reached it; in a thread, and before that call returns.

    Raises:
        ConfigurationError: for any other value, named with what is allowed.
    """

    name: str
    usd: Decimal | float | str | None = None
    tokens: int | None = None
    period: BudgetPeriod = "total"
    provider: str | None = None
    model: str | None = None
    tag: str | None = None
    session: str | None = None
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
        if self.tag is not None and not all(self.tag.partition("=")):
            raise self._wrong("tag", f"is {self.tag!r}; write 'name=value', or 'name=*' for each value")
        if self.model is not None and "*" in self.model[:-1]:
            raise self._wrong("model", f"is {self.model!r}; a '*' may stand at its end only")

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
    def parted(self) -> bool:
        """Whether each value of a label, or each session, has the limit to itself."""
        return self.session == "*" or (self.tag is not None and self.tag.endswith("=*"))

    def subject(self, scope: BudgetScope) -> str | None:
        """Return whose limit a call counts against: empty for the budget's one; None where it does not."""
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

    def told(self, amount: int) -> str:
        """Return an amount of what the limit is in, for a person."""
        return f"{amount:,} tokens" if self.usd is None else exact_dollars(amount)


def exact_dollars(nano: int) -> str:
    """Return nano-dollars as exact dollars, with two decimals at least: ``$5.00``, ``$0.00000025``."""
    whole, part = divmod(abs(nano), 10**9)
    return f"{'-' if nano < 0 else ''}${whole:,}.{f'{part:09}'.rstrip('0'):0<2}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNotice:
    """The word that so much of a budget is used.

    Attributes:
        percent: 50, 80 or 100.
        spent, limit: dollars, or tokens, as the budget counts.
        subject: whose limit it is, where each value or session has one; else empty.
        period: ``total``, the day (``2026-01-31``) or the month (``2026-01``).
        resets_at: when the next period begins; None for ``total``.
    """

    budget: Budget
    percent: int
    spent: Decimal | int
    limit: Decimal | int
    subject: str
    period: str
    resets_at: datetime | None
