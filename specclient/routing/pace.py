"""Turn finished calls of one kind into how fast the next one goes: to its first token and for each one."""

from __future__ import annotations

from dataclasses import dataclass

from specclient.routing.line import Line
from specclient.routing.sample import Sample
from specclient.routing.sketch import Sketch, quantiles

__all__ = ["Pace", "Timing", "Typical", "timing", "typical"]

#: How old calls fade, by count and by time.
_CALLS, _SECONDS = 25.0, 3600.0
#: Calls of all tasks that lean in where a task has none of its own; fewer the more it has.
LEAN = 6.0
#: A first token later than so many medians bears on none of what prompts cost.
_OUTLIER = 5.0
#: An engine's call that took so many times its work, and a second, waited for weights to be loaded.
_LOADING = 4.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one call.

    Attributes:
        tokens: of the answer, 1 at least; ``prompt``: of the prompt, 0 where unknown.
        first_s: to the first token, None where unknown; ``total_s``: in all; ``working_s``: of them, those
            that were work on it.
        engine_s: of the engine in this process, None for hosted calls.
    """

    tokens: int
    prompt: int
    first_s: float | None
    total_s: float
    working_s: float
    engine_s: float | None


def timing(sample: Sample) -> Timing | None:
    """Return the seconds of a finished call; None where it says nothing of the next one's.

    A call of the engine in this process counts by the seconds it was worked on: the rest was a queue that is
    gone, or weights being loaded. That it took so long in all counts too, unless weights were loaded.
    """
    tokens, latency = sample.completion_tokens, sample.latency_s
    if sample.failed or not tokens or tokens < 0 or latency is None or not latency >= 0:
        return None
    first, engine = sample.ttft_s, sample.engine_s
    prompt = max(sample.prompt_tokens or 0, 0)
    if engine is None:
        first = None if first is None else min(first, latency)
        return Timing(tokens, prompt, first, latency, latency, None)
    if first is not None and first > engine:
        first = None
    total = engine if latency > _LOADING * engine + 1 else latency
    return Timing(tokens, prompt, first, max(total, engine), engine, engine)


@dataclass(frozen=True, slots=True)
class Typical:
    """The middle of what is expected.

    Attributes:
        ttft_s: seconds to the first token of a prompt of ``prompt`` tokens, each one more adding
            ``prompt_token_s``; ``token_s``: for each token of the answer.
        told: whether a first token was seen, or can be told apart from the rest.
    """

    ttft_s: float
    token_s: float
    prompt_token_s: float = 0.0
    prompt: float = 0.0
    told: bool = True

    def first_s(self, prompt_tokens: int | None) -> float:
        """Return the seconds to the first token for a prompt of so many tokens, as usual where None."""
        if not self.prompt_token_s or not prompt_tokens:
            return self.ttft_s
        return max(self.ttft_s + self.prompt_token_s * (prompt_tokens - self.prompt), 0.2 * self.ttft_s)

    def seconds(self, tokens: float, prompt_tokens: int | None) -> float:
        """Return the seconds of an answer."""
        return self.first_s(prompt_tokens) + self.token_s * tokens


class Pace:
    """How fast calls of one route, and of one task or of all, have gone of late."""

    __slots__ = ("_prompt", "_unstreamed", "engine", "first", "token")

    def __init__(self) -> None:
        self.first = Sketch(_CALLS, _SECONDS)
        self.token = Sketch(_CALLS, _SECONDS)
        self.engine = Sketch(_CALLS, _SECONDS)
        self._prompt = Line(2 * _CALLS)
        self._unstreamed = Line(2 * _CALLS)

    def add(self, call: Timing, usual_first_s: float | None, at: float) -> None:
        """Note a call.

        Args:
            usual_first_s: taken off one whose own first token was not seen; None where no call's was.
        """
        first = call.first_s
        if first is None:
            if usual_first_s is None:
                self._unstreamed.add(call.tokens, call.working_s)
            first = usual_first_s or 0.0
        else:
            middle = self.first.quantile(0.5)
            self.first.add(first, at)
            if call.prompt and (middle is None or first <= _OUTLIER * middle + 1e-3):
                self._prompt.add(call.prompt, first)
        self.token.add(max(call.working_s - first, 0.0) / call.tokens, at)
        if call.engine_s is not None:
            self.engine.add(call.engine_s / call.tokens, at)

    @property
    def line(self) -> tuple[float, float]:
        """Seconds that each token of a prompt adds, 0 where none were seen, and the usual prompt's tokens."""
        return self._prompt.slope or 0.0, self._prompt.x

    @property
    def apart(self) -> tuple[float, float] | None:
        """Seconds to the first token and for each one, told from whole calls of several lengths."""
        slope, start = self._unstreamed.slope, self._unstreamed.intercept
        return None if slope is None or start is None else (start, slope)


def typical(own: Pace | None, every: Pace, at: float) -> Typical | None:
    """Return what is expected of a task from its own calls and, where they are few, from all of a route."""
    if not every.token.weight():
        return None
    (token,) = mixed(None if own is None else own.token, every.token, at, (0.5,))
    if every.first.weight():
        (first,) = mixed(None if own is None else own.first, every.first, at, (0.5,))
        slope, prompt = every.line
        if slope and own is not None and own.first.weight():
            prompt = own.line[1] or prompt
        return Typical(first, token, slope, prompt)
    apart = every.apart
    if apart is None:
        return Typical(0.0, token, told=False)
    return Typical(apart[0], apart[1])


def mixed(own: Sketch | None, every: Sketch, at: float, shares: tuple[float, ...]) -> list[float]:
    """Return quantiles of a task's values, leaning on those of all tasks as far as it has few."""
    calls = 0.0 if own is None else own.weight(at)
    mixture = [(every, LEAN * LEAN / (LEAN + calls))]
    if own is not None:
        mixture.append((own, calls))
    return quantiles(mixture, shares)
