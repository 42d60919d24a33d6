"""Every field of Call has a rule for calls with sub-calls, and its record follows the rule."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from specclient.call.call_fields import MERGE_RULES, request_fields
from specclient.call.subcalls import ParentCall, parent_record
from specclient.types import inference_methods
from specclient.types.call import Call
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Speculation

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROUTE, OTHER = Decision("p/m", "p", "m"), Decision("p/n", "p", "n")
REQUEST = Request(
    inference_methods.CHAT,
    "auto",
    {"metadata": {"a": "b", "not text": 1}},
    stream=True,
    options=PerCallOptions(tags={"team": "red"}, session="s"),
)


def part(route: Decision, mark: int) -> Call:
    """Return the record of a sub-call with a value for each field that it shares with its parent."""
    return Call(
        id=f"part{mark}",
        started_at=AT,
        operation="chat",
        model="auto",
        route=route,
        status="ok",
        parent="c1",
        purpose="failover",
        served_model=f"m-{mark}",
        request_id=f"r{mark}",
        pair=f"m+d{mark}",
        speculation=Speculation(drafted=mark),
        counts={"tool_calls": mark},
    )


def record(*parts: Call) -> Call:
    parent = ParentCall(
        id="c1", strategy=None, request=REQUEST, route=ROUTE, started_at=AT, started_s=0.0, parts=list(parts)
    )
    return parent_record(parent, status="ok", latency_s=1.0, ttft_s=0.5, error=None)


def names(rule: str) -> list[str]:
    return [name for name, known in MERGE_RULES.items() if known == rule]


def test_every_field_has_a_rule() -> None:
    assert set(MERGE_RULES) == {field.name for field in dataclasses.fields(Call)}
    assert set(request_fields(REQUEST)) == set(names("request"))


def test_a_record_is_merged_by_the_rules() -> None:
    last = part(ROUTE, 2)
    merged = record(part(ROUTE, 1), last, part(OTHER, 3))
    request_values = {name: getattr(merged, name) for name in names("request")}
    assert request_values == request_fields(REQUEST)
    assert (request_values["metadata"], request_values["session"], request_values["tags"]) == (
        {"a": "b"},
        "s",
        {"team": "red"},
    )
    for name in names("final"):
        assert getattr(merged, name) == getattr(last, name) is not None, name
    assert (merged.parent, merged.purpose, merged.lost_attempts) == (None, "call", ())
    assert merged.attempts == 3


def test_without_a_sub_call_on_its_route_a_record_has_none_of_its_values() -> None:
    merged = record(part(OTHER, 1))
    assert (merged.pair, merged.served_model, merged.counts, merged.speculation) == (None, None, {}, None)
