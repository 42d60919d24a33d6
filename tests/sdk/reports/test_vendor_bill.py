"""Cost exports of vendors are read whole, in any order, or refused with the place of the error."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from specclient.errors import ConfigurationError
from specclient.reports.vendor_bill import BilledAmount, VendorBill, read_bill

DAY = date(2026, 11, 1)


def _openai(*results: dict[str, Any], **page: Any) -> dict[str, Any]:
    bucket = {"object": "bucket", "start_time": 1793491200, "end_time": 1793577600, "results": list(results)}
    return {"object": "page", "data": [bucket], "has_more": False, "next_page": None, **page}


def _result(
    value: Any, item: str | None = "gpt-5-2025-08-07, input", currency: str = "usd"
) -> dict[str, Any]:
    amount = {"value": value, "currency": currency}
    return {"object": "organization.costs.result", "amount": amount, "line_item": item, "project_id": None}


def _bill(content: object) -> VendorBill:
    return read_bill((content if isinstance(content, str) else json.dumps(content)).encode(), "costs")


def test_openais_costs_are_dollars_by_line_item() -> None:
    assert _bill(_openai(_result(0.06), _result(1e-7, "Web search"))) == VendorBill(
        "openai",
        (DAY,),
        (
            BilledAmount(DAY, "gpt-5-2025-08-07", Decimal("0.06")),
            BilledAmount(DAY, "web search", Decimal("1E-7")),
        ),
    )


def test_anthropics_costs_are_cents_as_text() -> None:
    result = {"amount": "123.45", "currency": "USD", "model": "claude-opus-5", "token_type": "output_tokens"}
    bucket = {"starting_at": "2026-11-01T00:00:00Z", "ending_at": "2026-11-02T00:00:00Z", "results": [result]}
    found = _bill({"data": [bucket, {**bucket, "results": []}], "has_more": False, "next_page": None})
    assert found == VendorBill("anthropic", (DAY,), (BilledAmount(DAY, "claude-opus-5", Decimal("1.2345")),))


def test_pages_may_follow_one_another() -> None:
    first, second = _openai(_result(1), has_more=True), _openai(_result(2))
    found = _bill(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    assert [each.dollars for each in found.amounts] == [1, 2]


CSV = (
    "start_time,end_time,start_time_iso,amount_value,amount_currency,line_item,organization_id\r\n"
    '1793491200,1793577600,2026-11-01T00:00:00+00:00,0.5,usd,"gpt-5-2025-08-07, output",org\r\n'
    "1793577600,1793664000,2026-11-02T00:00:00+00:00,,,,org\r\n"
)


def test_a_csv_file_is_read_by_its_columns() -> None:
    assert _bill(CSV) == VendorBill(
        "openai",
        (DAY, date(2026, 11, 2)),
        (BilledAmount(DAY, "gpt-5-2025-08-07", Decimal("0.5")),),
    )
    anthropic = "usage_date_utc,model,token_type,cost_usd\n2026-11-01,claude-opus-5,output,-0.25\n"
    assert _bill(anthropic) == VendorBill(
        "anthropic", (DAY,), (BilledAmount(DAY, "claude-opus-5", Decimal("-0.25")),)
    )
    assert _bill("Date,Cost\n2026-11-01T23:30:00-02:00,1\n").days == (date(2026, 11, 2),)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "costs is empty"),
        (json.dumps(_openai(_result(1)))[:-20], "is no complete JSON .* save the whole response"),
        (_openai(_result(1), has_more=True), "'has_more' is true; append the following pages"),
        ({"error": {"message": "no"}}, "has no list 'data' of buckets"),
        ([1], "has no list 'data' of buckets"),
        (_openai(_result(1, currency="eur")), "an amount is in 'eur'; only exports in US dollars"),
        (_openai(_result("x")), "'x' is no amount"),
        (_openai(_result(True)), "'True' is no amount"),
        (_openai(_result(None)), "'None' is no amount"),
        ({"data": [{"start_time": "tomorrow", "results": []}]}, "'tomorrow' is no date"),
        ({"data": [{"start_time": 10**30, "results": []}]}, "is no date"),
        ({"data": [{"start_time": 0}]}, "the bucket of 1970-01-01 has no list of results"),
        ({"data": [{"start_time": 0, "results": [1]}]}, "a result of 1970-01-01 is no object"),
        ("a,b\n1,2\n", "has no column with the day: one of usage_date_utc.*its columns are a, b"),
        ("date,b\n1,2\n", "has no column with the amount"),
        (CSV[:-8], "line 3 has more or fewer cells than the first line; is the file cut short"),
        ('date,cost\n2026-11-01,"1', "is no CSV: unexpected end of data"),
        ("date,cost\n2026-11-01,NaN\n", "line 2: 'NaN' is no amount"),
        ("date,cost,currency\n2026-11-01,1,CNY\n", "an amount is in 'cny'"),
    ],
)  # fmt: skip
def test_unusable_exports_are_refused_with_the_reason(content: object, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        _bill(content)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        read_bill(b"\xff\xfe{}", "costs")
