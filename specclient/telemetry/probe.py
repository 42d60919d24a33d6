"""Probes the features and reports of an endpoint by a few short requests.

An answer alone proves nothing, because most servers ignore unknown fields. So each finding is confirmed by a
second request that a server with this feature must answer differently.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specclient.telemetry.collector import extract_speculation
from specclient.types.base import field_of
from specclient.types.capabilities import Capabilities, Verification

#: What the server does with a field. ``untelemetered``: it uses the field, but does not report the outcome.
ProbeOutcome = Literal["honoured", "ignored", "refused", "untelemetered", "unknown"]

#: The token limit of each request of :func:`probe`.
MAX_TOKENS = 16

_TEXT = "one two three four five six seven eight"
_MIN_TEXT_TOKENS = 8  # of _TEXT, in any vocabulary
_ECHOED_TOKENS = 4  # requested by echo_last
_REPEAT_MESSAGES = [{"role": "user", "content": f"Repeat this, and add nothing: {_TEXT}"}]
_PREDICTION = {"type": "content", "content": _TEXT}
_MALFORMED = {"type": "specclient-probe", "content": {"no": "text"}}
_PREDICTION_FORMAT = "openai"  # the telemetry format that reports a prediction's counts
_PREFIX = "Sure: four five six"
_PREFILL_MESSAGES = [
    {"role": "user", "content": "Count from one to ten in English words, separated by blanks."},
    {"role": "assistant", "content": _PREFIX},
]
#: The parameters of each form of verification that is probed.
_VERIFICATION_PARAMS: Mapping[Verification, Mapping[str, Any]] = {
    "prompt_logprobs": {"prompt_logprobs": 1},
    "echo": {"echo": True, "logprobs": 1},
    "echo_last": {"echo_last": _ECHOED_TOKENS, "logprobs": 1},
}


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """The outcome of one request.

    Attributes:
        answer: decoded; None where the endpoint refused the request.
        refusal: the endpoint's error message in that case.
    """

    answer: Any = None
    refusal: str = ""


#: Sends one request. Arguments: ``chat`` or ``completion``, the purpose, the parameters. Raises errors that
#: are not refusals of these parameters: a wrong key, a rate limit, an unreachable server.
ProbeSender = Callable[[Literal["chat", "completion"], str, Mapping[str, Any]], Awaitable[ProbeReply]]


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The outcome for one feature, and the evidence for it."""

    outcome: ProbeOutcome
    evidence: str


@dataclass(slots=True)
class ProbeReport:
    """The findings of a probe.

    Attributes:
        findings: by feature: ``prediction``, ``verification``, ``telemetry``, ``prefill``.
        formats: the telemetry formats of the answers; see :mod:`specclient.telemetry.formats`.
        verification: the form in which the server reports the log-probabilities of a prompt.
        requests: the number of requests made.
    """

    findings: dict[str, ProbeFinding] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    verification: Verification | None = None
    requests: int = 0

    def capabilities(self) -> dict[str, Any]:
        """Return the fields of :class:`Capabilities` that are now certain."""
        known: dict[str, Any] = {}
        yes_or_no = {"honoured": True, "ignored": False, "refused": False}
        for name, finding in self.findings.items():
            supported = yes_or_no.get(finding.outcome)
            if name == "prediction" and supported is not None:
                known["prediction"] = supported
            elif name == "prefill" and supported is not None:
                known["prefill"] = "assistant" if supported else False
            elif name == "verification" and supported is not None:
                known["verification"] = self.verification if supported else False
        if self.formats:  # their absence from a few short answers proves nothing
            known["telemetry"] = self.formats
        return known


async def probe(send: ProbeSender, capabilities: Capabilities, *, prefill: bool = False) -> ProbeReport:
    """Probe a model.

    Args:
        send: sends a request and returns its outcome.
        capabilities: the known capabilities of the endpoint; their form of verification is tried first.
        prefill: whether to probe a partial assistant turn.

    Raises:
        Exception: whatever ``send`` raises; nothing is known in that case.
    """
    report, formats = ProbeReport(), dict[str, None]()

    async def send_counted(
        kind: Literal["chat", "completion"], purpose: str, params: Mapping[str, Any]
    ) -> ProbeReply:
        report.requests += 1
        reply = await send(kind, purpose, params)
        formats.update(dict.fromkeys(_formats_in(reply.answer)))
        return reply

    report.findings["prediction"] = await _probe_prediction(send_counted)
    finding, report.verification = await _probe_verification(send_counted, capabilities)
    report.findings["verification"] = finding
    if prefill:
        params = {"messages": _PREFILL_MESSAGES, "max_tokens": MAX_TOKENS}
        report.findings["prefill"] = _prefill_finding(await send_counted("chat", "prefill", params))
    if report.findings["prediction"].outcome != "honoured":
        formats.pop(_PREDICTION_FORMAT, None)  # counts of a prediction that is ignored mean nothing
    report.formats = tuple(formats)
    report.findings["telemetry"] = (
        ProbeFinding("honoured", f"responses have telemetry in the format of {', '.join(formats)}")
        if formats
        else ProbeFinding("unknown", "these responses have no telemetry")
    )
    return report


async def _probe_prediction(send: ProbeSender) -> ProbeFinding:
    """Send a prediction, then a request that only an endpoint with predictions answers differently."""
    params = {"messages": _REPEAT_MESSAGES, "max_tokens": MAX_TOKENS}
    predicted = await send("chat", "prediction", {**params, "prediction": _PREDICTION})
    counts = None if predicted.answer is None else _prediction_counts(predicted.answer)
    if predicted.answer is not None and not (counts and any(counts)):
        malformed = await send(
            "chat", "malformed prediction", {**params, "max_tokens": 1, "prediction": _MALFORMED}
        )
        return _malformed_finding(counts, malformed)
    plain = await send("chat", "no prediction", {**params, "max_tokens": 1 if counts is None else MAX_TOKENS})
    if counts is None:
        if plain.answer is None:
            return ProbeFinding("unknown", f"a request without a prediction is refused too: {plain.refusal}")
        return ProbeFinding("refused", predicted.refusal)
    accepted, rejected = counts
    if plain.answer is not None and _prediction_counts(plain.answer) == counts:
        return ProbeFinding("ignored", "a request without a prediction has the same counts")
    return ProbeFinding("honoured", f"{accepted} predicted tokens accepted, {rejected} rejected")


def _malformed_finding(counts: tuple[int, int] | None, malformed: ProbeReply) -> ProbeFinding:
    if malformed.answer is not None:
        return ProbeFinding("ignored", "a malformed prediction is not refused")
    if counts is None:
        return ProbeFinding(
            "untelemetered", "a malformed prediction is refused, and a valid one has no counts"
        )
    return ProbeFinding("honoured", "its counts are reported, and a malformed prediction is refused")


async def _probe_verification(
    send: ProbeSender, capabilities: Capabilities
) -> tuple[ProbeFinding, Verification | None]:
    """Request the log-probabilities of a prompt, in each form until one works."""
    known = capabilities.verification
    if known is False:
        return ProbeFinding("unknown", "not probed: the endpoint is known to have no form for it"), None
    if known is not None and known not in _VERIFICATION_PARAMS:
        return ProbeFinding("unknown", f"not probed: known to have the form {known}, on another route"), None
    forms: list[Verification] = [known] if known else ["prompt_logprobs", "echo"]
    refusals: list[str] = []
    for form in forms:
        params = {"prompt": _TEXT, "max_tokens": 1, **_VERIFICATION_PARAMS[form]}
        reply = await send("completion", form, params)
        if reply.answer is None:
            refusals.append(reply.refusal)
        elif _has_scores(form, reply.answer):
            return ProbeFinding("honoured", f"{form} returns the scores of a prompt's tokens"), form
    if len(refusals) == len(forms):
        return ProbeFinding("refused", refusals[-1]), None
    return ProbeFinding("ignored", f"no scores of the prompt are returned for {' or '.join(forms)}"), None


def _prefill_finding(reply: ProbeReply) -> ProbeFinding:
    if reply.answer is None:
        return ProbeFinding("refused", reply.refusal)
    text = _content(reply.answer).strip()
    rest = text.removeprefix(_PREFIX).strip(" ,.\n")
    if rest.lower().startswith("seven"):
        return ProbeFinding("honoured", "the turn is continued")
    return ProbeFinding("ignored", "the answer starts over")


def _prediction_counts(answer: Any) -> tuple[int, int] | None:
    """Return accepted and rejected tokens of a prediction; None where not reported, or impossible."""
    record = extract_speculation(answer, predicted=True)
    if record is None or record.predicted_accepted is None or record.predicted_rejected is None:
        return None
    usage = getattr(answer, "usage", None)
    generated = getattr(usage, "completion_tokens", None)
    if isinstance(generated, int) and record.predicted_accepted > generated:
        return None
    return record.predicted_accepted, record.predicted_rejected


def _formats_in(answer: Any) -> Iterator[str]:
    """Yield the telemetry formats that an answer contains."""
    record = None if answer is None else extract_speculation(answer)
    yield from (record.source or "").split(", ") if record else ()


def _has_scores(form: Verification, answer: Any) -> bool:
    """Return whether an answer holds the log-probabilities of the prompt's tokens."""
    choice = _first(field_of(answer, "choices"))
    if form == "prompt_logprobs":
        rows = field_of(choice, "prompt_logprobs") or field_of(answer, "prompt_logprobs")
        return (
            isinstance(rows, list)
            and len(rows) >= _MIN_TEXT_TOKENS
            and all(_has_ranks(row) for row in rows[1:])
        )
    if form == "echo":
        prompt_scores = field_of(field_of(_first(field_of(answer, "prompt")), "logprobs"), "token_logprobs")
        if _are_scores(prompt_scores, at_least=_MIN_TEXT_TOKENS):
            return True  # Together returns the prompt's scores separately
        if not str(field_of(choice, "text") or "").startswith(_TEXT):
            return False
    scores = field_of(field_of(choice, "logprobs"), "token_logprobs")
    prompt_tokens = _MIN_TEXT_TOKENS if form == "echo" else _ECHOED_TOKENS
    return _are_scores(scores, at_least=prompt_tokens + 1)  # one is the generated token's


def _has_ranks(row: Any) -> bool:
    tokens = list(row.values()) if isinstance(row, Mapping) else []
    return bool(tokens) and all(_is_score(field_of(t, "logprob")) and field_of(t, "rank") for t in tokens)


def _are_scores(scores: Any, *, at_least: int) -> bool:
    """Return whether a value is a list of log-probabilities; the first may be missing."""
    if not isinstance(scores, list) or len(scores) < at_least:
        return False
    return all(_is_score(score) for score in scores[1:])


def _is_score(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value <= 0
    )


def _content(answer: Any) -> str:
    content = field_of(field_of(_first(field_of(answer, "choices")), "message"), "content")
    return content if isinstance(content, str) else ""


def _first(rows: Any) -> Any:
    return rows[0] if isinstance(rows, list) and rows else None
