"""The criteria that routes are compared by: cost, latency, time to first token and quality.

:data:`CRITERIA` is the one list of them. Scores, limits, reasons, the options of the command line, the keys
of a policy and the figures of a simulation all follow from it. A criterion that a program adds is treated as
a shipped one::

    GRAMS = {"openai/gpt-4.1": 0.002, "local/demo": 0.0005}
    CRITERIA.add(
        Criterion(
            "co2_g",
            "g CO2",
            predict=lambda call: GRAMS[call.route] * call.completion_tokens,
            bounds=(Bound("max_co2_g"),),
        )
    )
    Policy(minimize={"cost": 1, "co2_g": 0.0001}, limits={"max_co2_g": 0.5})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from specclient.errors import ConfigurationError
from specclient.runtime.number_format import format_number

__all__ = [
    "COST",
    "CRITERIA",
    "LATENCY",
    "QUALITY",
    "TTFT",
    "Bound",
    "CandidateCall",
    "CriteriaList",
    "Criterion",
    "PromptTask",
]


#: The kind of a prompt, by which answer lengths, speeds and acceptance rates differ.
PromptTask = Literal["chat", "code", "document", "long_context"]


class CandidateCall(NamedTuple):
    """One call on one route, as predicted or as simulated: the argument of a criterion's functions.

    Attributes:
        route: ``provider/model``.
        task: the kind of the prompt.
        local: whether the call stays on this machine.
        draft: the route of a client-side draft; None without one.
        prompt_tokens: of the prompt, in the route's own vocabulary.
        completion_tokens: of the answer.
        cost_usd: dollars, None where no price is known; ``exact_cost_usd``: the same as an exact Decimal.
        latency_s: seconds to the end of the answer, the median of a prediction; None where unknown.
        latency_limit_s: the seconds that the policy's ``percentile`` of calls keep; None where unknown.
        ttft_s, ttft_limit_s: the same for the first token.
        quality: the model's tier, from 0 to 1; None where unknown.
    """

    route: str
    task: PromptTask
    local: bool
    draft: str | None
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float | None
    exact_cost_usd: Decimal | None
    latency_s: float | None
    latency_limit_s: float | None
    ttft_s: float | None
    ttft_limit_s: float | None
    quality: float | None


@dataclass(frozen=True)
class Bound:
    """A limit that a policy may set on a criterion.

    Attributes:
        field: its name in :class:`specclient.types.policy.Policy`: a field of it, else a key of ``limits``:
            ``Policy(limits={"max_co2_g": 0.5})``. A new bound needs no field in ``Policy``; every policy, in
            code, configuration and on the command line, may then set it.
        at_most: whether values above the limit break it; False: values below it.
        predict: the value that must keep the limit; None for the criterion's own ``predict``.
        unknown: the effect of an unknown value on a route: ``refuse`` refuses it, ``rank_last`` ranks it
            behind routes that are known to keep the limit, ``ignore`` has no effect.
        greatest: the greatest limit that makes sense.
        positive: whether a limit of 0 makes no sense.
        flag: the option of the command line, such as ``--max-cost``; None leaves it to ``--limit
            FIELD=VALUE``.
        help: the option's help text.
        way_out: how a user sets an unknown value; ends the reason of a refusal.
    """

    field: str
    at_most: bool = True
    predict: Callable[[CandidateCall], float | Decimal | None] | None = None
    unknown: Literal["refuse", "rank_last", "ignore"] = "refuse"
    greatest: float = float("inf")
    positive: bool = False
    flag: str | None = None
    help: str = ""
    way_out: str = ""


@dataclass(frozen=True)
class Criterion:
    """One quantity that routes are compared by.

    A ``predict`` that only adds numbers and multiplies them by constants is fast: it is evaluated once per
    estimate, on symbolic sums of tokens, not for each route of a decision. Any other one (a comparison, a
    product of two predicted values, a call of ``math``) is evaluated for each route of each decision. Test
    for unknown values with ``is None``.

    Attributes:
        name: the name in ``minimize``, in figures and in columns: ``co2_g``.
        unit: the unit of its values: ``g CO2``.
        predict: returns the value of a call, None where unknown.
        bounds: the limits that a policy may set.
        explain: returns a value as text; None for three digits and the unit.
        simulate: returns the value of a simulated call, whose tokens and seconds are the true ones; None for
            ``predict``.
        per_attempt: whether failed attempts add to it. They add to the time of a call, but not to its cost,
            because providers do not bill failed calls.
        learned: whether its value is learned from finished calls; False for a known property of the model.
        weighable: whether ``minimize`` may name it.
        superlative: the name of the best route in reasons; empty for ``least NAME``.
        label: the name in reasons; empty for ``name`` with spaces.
        explained: when reasons state the value: ``always``, ``used`` (the policy weighs or limits it), or
            ``never`` except for a broken limit.
        has_fields: whether candidates, tables and summaries have fields of their own for it. The values of
            other criteria are in ``figures``, also in the ledger.
    """

    name: str
    unit: str
    predict: Callable[[CandidateCall], float | None]
    bounds: tuple[Bound, ...] = ()
    explain: Callable[[float], str] | None = None
    simulate: Callable[[CandidateCall], float | None] | None = None
    per_attempt: bool = False
    learned: bool = True
    weighable: bool = True
    superlative: str = ""
    label: str = ""
    explained: Literal["always", "used", "never"] = "used"
    has_fields: bool = False

    @property
    def title(self) -> str:
        """The name in the reasons of a decision."""
        return self.label or self.name.replace("_", " ")

    @property
    def best(self) -> str:
        """The name of the route with the least value in the reasons of a decision."""
        return self.superlative or f"least {self.title}"

    def text(self, value: float) -> str:
        """Return a value as text, with its unit."""
        if self.explain is not None:
            return self.explain(value)
        return f"{format_number(value)} {self.unit}".rstrip()

    def simulated(self, call: CandidateCall) -> float | None:
        """Return the value of a simulated call, None where unknown."""
        return (self.simulate or self.predict)(call)


COST = Criterion(
    "cost",
    "USD",
    predict=lambda call: call.cost_usd,
    bounds=(
        Bound(
            "max_cost_usd",
            predict=lambda call: call.exact_cost_usd,
            flag="--max-cost",
            help="Rule out routes with a higher predicted cost, in dollars.",
            way_out="set its price under [prices]",
        ),
    ),
    explain=lambda dollars: f"${format_number(dollars)}",
    superlative="cheapest",
    explained="always",
    has_fields=True,
)

LATENCY = Criterion(
    "latency",
    "s",
    predict=lambda call: call.latency_s,
    bounds=(
        Bound(
            "max_latency_s",
            predict=lambda call: call.latency_limit_s,
            unknown="rank_last",
            flag="--max-latency",
            help="Rule out routes with a longer predicted time to the whole answer, in seconds.",
        ),
        Bound(
            "deadline_s",
            unknown="ignore",
            positive=True,
            flag="--deadline",
            help="Seconds for all attempts together, fallbacks included.",
        ),
    ),
    per_attempt=True,
    superlative="fastest",
    explained="always",
    has_fields=True,
)

TTFT = Criterion(
    "ttft",
    "s",
    predict=lambda call: call.ttft_s,
    bounds=(
        Bound(
            "max_ttft_s",
            predict=lambda call: call.ttft_limit_s,
            unknown="rank_last",
            flag="--max-ttft",
            help="Rule out routes with a longer predicted time to the first token, in seconds.",
        ),
    ),
    per_attempt=True,
    weighable=False,
    explained="never",
    has_fields=True,
)

QUALITY = Criterion(
    "quality",
    "",
    predict=lambda call: call.quality,
    bounds=(
        Bound(
            "min_quality",
            at_most=False,
            greatest=1.0,
            flag="--min-quality",
            help="Rule out routes of a lower quality, from 0 to 1; unscored models have their tier.",
            way_out="set it under [quality]",
        ),
    ),
    learned=False,
    weighable=False,
    explained="never",
    has_fields=True,
)


class CriteriaList(Mapping[str, Criterion]):
    """Criteria by name, in order.

    Attributes:
        version: grows with every change; data derived from the list is valid for one version.
    """

    def __init__(self, criteria: Iterable[Criterion]) -> None:
        self._criteria: dict[str, Criterion] = {}
        #: All bounds with their criteria, by field.
        self.bounds: Mapping[str, tuple[Criterion, Bound]] = {}
        #: The names that ``minimize`` may hold.
        self.weighable: tuple[str, ...] = ()
        #: The names of the criteria that have fields of their own.
        self.with_fields: frozenset[str] = frozenset()
        self.version = 0
        for criterion in criteria:
            self.add(criterion)

    def __getitem__(self, name: str) -> Criterion:
        return self._criteria[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._criteria)

    def __len__(self) -> int:
        return len(self._criteria)

    def add(self, criterion: Criterion) -> None:
        """Add a criterion for the rest of the program.

        Raises:
            ConfigurationError: another criterion has its name, or the name or option of one of its bounds.
        """
        fields = {bound.field for bound in criterion.bounds}
        if criterion.name in self._criteria or len(fields) < len(criterion.bounds):
            raise ConfigurationError(f"criterion {criterion.name!r} exists already; use another name")
        if taken := fields & self.bounds.keys():
            raise ConfigurationError(f"another criterion has the bound {min(taken)!r}; use another name")
        flags = {bound.flag for _, bound in self.bounds.values() if bound.flag}
        if shared := flags & {bound.flag for bound in criterion.bounds}:
            raise ConfigurationError(f"another criterion has the option {min(shared)}; use another name")
        self._set({**self._criteria, criterion.name: criterion})

    @contextmanager
    def added(self, criterion: Criterion) -> Iterator[Criterion]:
        """Add a criterion until the end of a ``with`` block."""
        self.add(criterion)
        try:
            yield criterion
        finally:
            self._set({name: each for name, each in self._criteria.items() if name != criterion.name})

    def _set(self, criteria: dict[str, Criterion]) -> None:
        self._criteria = criteria
        self.bounds = {bound.field: (each, bound) for each in criteria.values() for bound in each.bounds}
        self.weighable = tuple(name for name, each in criteria.items() if each.weighable)
        self.with_fields = frozenset(name for name, each in criteria.items() if each.has_fields)
        self.version += 1


#: The criteria of this program.
CRITERIA = CriteriaList((COST, LATENCY, TTFT, QUALITY))
