"""Turn a few cheap answers of an endpoint into what it takes and tells; the asking is handed in.

That a request was answered proves nothing: most servers ignore fields they do not know. So each claim is held
against a second request in which it would have to fail.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specclient.telemetry.collector import extract_speculation
from specclient.types.capabilities import Capabilities, Verification

#: What becomes of a field. ``untelemetered``: it is looked at, and what became of it is not told.
ProbeOutcome = Literal["honoured", "ignored", "refused", "untelemetered", "unknown"]

#: The most tokens that :func:`probe` lets each of its requests generate.
MOST_TOKENS = 16

_TEXT = "one two three four five six seven eight"
_FEWEST = 8  # tokens of it, in any vocabulary
_LAST = 4
_ASKED = [{"role": "user", "content": f"Repeat this, and add nothing: {_TEXT}"}]
_PREDICTION = {"type": "content", "content": _TEXT}
_MALFORMED = {"type": "specclient-probe", "content": {"no": "text"}}
_COUNTS = "openai"  # the dialect in which a prediction's counts are told
_PREFIX = "Sure: four five six"
_TO_CONTINUE = [
    {"role": "user", "content": "Count from one to ten in English words, separated by blanks."},
    {"role": "assistant", "content": _PREFIX},
]
_FORMS: Mapping[Verification, Mapping[str, Any]] = {
    "prompt_logprobs": {"prompt_logprobs": 1},
    "echo": {"echo": True, "logprobs": 1},
    "echo_last": {"echo_last": _LAST, "logprobs": 1},
}


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """What came of one request.

    Attributes:
        answer: decoded; None where the endpoint refused the request as such.
        refusal: its words, then.
    """

    answer: Any = None
    refusal: str = ""


#: Sends one request: ``chat`` or ``completion``, what it is for, its parameters. Raises for what is no
#: refusal of the request as such: a wrong key, a limit, a server that cannot be reached.
ProbeSender = Callable[[Literal["chat", "completion"], str, Mapping[str, Any]], Awaitable[ProbeReply]]


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """What became of one thing, and how that is known."""

    outcome: ProbeOutcome
    evidence: str


@dataclass(slots=True)
class ProbeReport:
    """What a probe has found.

    Attributes:
        findings: by what was tried: ``prediction``, ``verification``, ``telemetry``, ``prefill``.
        telemetry: the dialects of :mod:`specclient.telemetry.collector` that were heard.
        verification: the form in which the log-probabilities of a prompt were given.
        requests: how many were made.
    """

    findings: dict[str, ProbeFinding] = field(default_factory=dict)
    telemetry: tuple[str, ...] = ()
    verification: Verification | None = None
    requests: int = 0

    def capabilities(self) -> dict[str, Any]:
        """Return the fields of :class:`Capabilities` known by this: none that is not sure."""
        found: dict[str, Any] = {}
        yes_or_no = {"honoured": True, "ignored": False, "refused": False}
        for name, finding in self.findings.items():
            known = yes_or_no.get(finding.outcome)
            if name == "prediction" and known is not None:
                found["prediction"] = known
            elif name == "prefill" and known is not None:
                found["prefill"] = "assistant" if known else False
            elif name == "verification" and known is not None:
                found["verification"] = self.verification if known else False
        if self.telemetry:  # silence in a few short answers is no proof
            found["telemetry"] = self.telemetry
        return found


async def probe(ask: ProbeSender, known: Capabilities, *, prefill: bool = False) -> ProbeReport:
    """Return what a model takes and tells.

    Args:
        ask: sends a request and says what came of it.
        known: of the endpoint; the form in which it scores prompts is tried first.
        prefill: whether a partial assistant turn is tried, too.

    Raises:
        Whatever ``ask`` does; nothing is known then.
    """
    report, heard = ProbeReport(), dict[str, None]()

    async def asked(
        kind: Literal["chat", "completion"], purpose: str, params: Mapping[str, Any]
    ) -> ProbeReply:
        report.requests += 1
        reply = await ask(kind, purpose, params)
        heard.update(dict.fromkeys(_dialects(reply.answer)))
        return reply

    report.findings["prediction"] = await _prediction(asked)
    report.findings["verification"], report.verification = await _verification(asked, known)
    if prefill:
        reply = await asked("chat", "prefill", {"messages": _TO_CONTINUE, "max_tokens": MOST_TOKENS})
        report.findings["prefill"] = _continued(reply)
    if report.findings["prediction"].outcome != "honoured":
        heard.pop(_COUNTS, None)  # what is told of a prediction that is not heeded says nothing
    report.telemetry = tuple(heard)
    report.findings["telemetry"] = (
        ProbeFinding("honoured", f"answers tell in the form of {', '.join(heard)}")
        if heard
        else ProbeFinding("unknown", "nothing was told in these answers")
    )
    return report


async def _prediction(asked: ProbeSender) -> ProbeFinding:
    """Ask with a prediction, and then so that only an endpoint which heeds it answers otherwise."""
    params = {"messages": _ASKED, "max_tokens": MOST_TOKENS}
    with_it = await asked("chat", "prediction", {**params, "prediction": _PREDICTION})
    told = None if with_it.answer is None else _counts(with_it.answer)
    if with_it.answer is not None and not (told and any(told)):
        malformed = await asked(
            "chat", "malformed prediction", {**params, "max_tokens": 1, "prediction": _MALFORMED}
        )
        return _judged_by_nonsense(told, malformed)
    without = await asked(
        "chat", "no prediction", {**params, "max_tokens": 1 if told is None else MOST_TOKENS}
    )
    if told is None:
        if without.answer is None:
            return ProbeFinding("unknown", f"it is refused without a prediction, too: {without.refusal}")
        return ProbeFinding("refused", with_it.refusal)
    accepted, rejected = told
    if without.answer is not None and _counts(without.answer) == told:
        return ProbeFinding("ignored", "the same counts are told of a request without one")
    return ProbeFinding("honoured", f"{accepted} tokens of it accepted, {rejected} rejected")


def _judged_by_nonsense(told: tuple[int, int] | None, malformed: ProbeReply) -> ProbeFinding:
    if malformed.answer is not None:
        return ProbeFinding("ignored", "a malformed one is answered like any other")
    if told is None:
        return ProbeFinding("untelemetered", "a malformed one is refused, and of a good one nothing is told")
    return ProbeFinding("honoured", "its counts are told, and a malformed one is refused")


async def _verification(asked: ProbeSender, known: Capabilities) -> tuple[ProbeFinding, Verification | None]:
    """Ask for the log-probabilities of a prompt, in each form until one is heeded."""
    if known.verification is False:
        return ProbeFinding("unknown", "not asked: the endpoint is known to have no form for it"), None
    if known.verification is not None and known.verification not in _FORMS:
        return ProbeFinding(
            "unknown", f"not asked: known in the form of {known.verification}, elsewhere"
        ), None
    forms: list[Verification] = [known.verification] if known.verification else ["prompt_logprobs", "echo"]
    refusals: list[str] = []
    for form in forms:
        reply = await asked("completion", form, {"prompt": _TEXT, "max_tokens": 1, **_FORMS[form]})
        if reply.answer is None:
            refusals.append(reply.refusal)
        elif _scores(form, reply.answer):
            return ProbeFinding("honoured", f"the tokens of a prompt are scored for {form}"), form
    if len(refusals) == len(forms):
        return ProbeFinding("refused", refusals[-1]), None
    return ProbeFinding("ignored", f"answered without scores of the prompt: {', '.join(forms)}"), None


def _continued(reply: ProbeReply) -> ProbeFinding:
    if reply.answer is None:
        return ProbeFinding("refused", reply.refusal)
    said = _content(reply.answer).strip()
    rest = said.removeprefix(_PREFIX).strip(" ,.\n")
    if rest.lower().startswith("seven"):
        return ProbeFinding("honoured", "the turn is continued")
    return ProbeFinding("ignored", "the answer begins afresh")


def _counts(answer: Any) -> tuple[int, int] | None:
    """Return accepted and rejected tokens of a prediction; None where they are not told, or cannot be."""
    found = extract_speculation(answer, predicted=True)
    if found is None or found.predicted_accepted is None or found.predicted_rejected is None:
        return None
    usage = getattr(answer, "usage", None)
    generated = getattr(usage, "completion_tokens", None)
    if isinstance(generated, int) and found.predicted_accepted > generated:
        return None
    return found.predicted_accepted, found.predicted_rejected


def _dialects(answer: Any) -> Iterator[str]:
    """Yield the dialects in which an answer tells anything."""
    found = None if answer is None else extract_speculation(answer)
    yield from (found.source or "").split(", ") if found else ()


def _scores(form: Verification, answer: Any) -> bool:
    """Tell whether an answer holds log-probabilities of the prompt's own tokens."""
    choice = _first(_get(answer, "choices"))
    if form == "prompt_logprobs":
        rows = _get(choice, "prompt_logprobs") or _get(answer, "prompt_logprobs")
        return isinstance(rows, list) and len(rows) >= _FEWEST and all(_ranked(row) for row in rows[1:])
    if form == "echo":
        ours = _get(_get(_first(_get(answer, "prompt")), "logprobs"), "token_logprobs")
        if _is_scores(ours, least=_FEWEST):
            return True  # Together keeps the prompt's apart
        if not str(_get(choice, "text") or "").startswith(_TEXT):
            return False
    scores = _get(_get(choice, "logprobs"), "token_logprobs")
    least = _FEWEST if form == "echo" else _LAST
    return _is_scores(scores, least=least + 1)  # one is that of the token that was generated


def _ranked(row: Any) -> bool:
    tokens = list(row.values()) if isinstance(row, Mapping) else []
    return bool(tokens) and all(_is_score(_get(t, "logprob")) and _get(t, "rank") for t in tokens)


def _is_scores(scores: Any, *, least: int) -> bool:
    """Tell whether this is a list of log-probabilities, of which the first may be missing."""
    if not isinstance(scores, list) or len(scores) < least:
        return False
    return all(_is_score(score) for score in scores[1:])


def _is_score(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value <= 0
    )


def _content(answer: Any) -> str:
    content = _get(_get(_first(_get(answer, "choices")), "message"), "content")
    return content if isinstance(content, str) else ""


def _first(rows: Any) -> Any:
    return rows[0] if isinstance(rows, list) and rows else None


def _get(where: Any, name: str) -> Any:
    return where.get(name) if isinstance(where, Mapping) else getattr(where, name, None)
