"""Reader of what a vendor billed: cost exports of OpenAI and Anthropic, as JSON or CSV.

Sources: OpenAI, "Costs" (``GET /v1/organization/costs``, amounts in dollars); Anthropic, "Get Cost Report"
(``GET /v1/organizations/cost_report``, amounts in cents, as text). CSV files are read by the names of their
columns. Days are in UTC, as the vendors bill them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from specclient.errors import ConfigurationError

__all__ = ["BilledAmount", "VendorBill", "bill_of_buckets", "read_bill"]

_CENT = Decimal("0.01")
#: Columns of CSV files, the first that is there; in lower case.
_DAY_COLUMNS = ("usage_date_utc", "start_time_iso", "start_time", "starting_at", "date", "day")
_AMOUNT_COLUMNS = ("amount_value", "cost_usd", "cost", "amount")
_CURRENCY_COLUMNS = ("amount_currency", "currency")
_MODEL_COLUMNS = ("model", "line_item")
#: Columns and fields with the key that was used, or else with a group of keys, in lower case.
_KEY_COLUMNS = ("api_key_id", "api_key", "project_id", "workspace_id", "workspace")
#: Columns that only one vendor's files have.
_OF_OPENAI, _OF_ANTHROPIC = ("line_item", "organization_id"), ("usage_date_utc", "token_type", "workspace")


@dataclass(frozen=True, slots=True)
class BilledAmount:
    """A line of a bill.

    Attributes:
        day: the day in UTC.
        model: the model, or whatever else was billed; empty if the line names nothing.
        dollars: US dollars; negative for a credit.
        key: the vendor's name of the key, project or workspace; empty if the line names none.
    """

    day: date
    model: str
    dollars: Decimal
    key: str = ""


@dataclass(frozen=True, slots=True)
class VendorBill:
    """A bill.

    Attributes:
        vendor: ``openai`` or ``anthropic``; None if the file does not tell.
        days: the days that the file covers, also those without an amount, ascending.
        amounts: its lines.
    """

    vendor: str | None
    days: tuple[date, ...]
    amounts: tuple[BilledAmount, ...]


def read_bill(content: bytes, name: str) -> VendorBill:
    """Read an export.

    Args:
        content: JSON (a page of the API, or several one after the other), or CSV.
        name: the file's name, for errors.

    Raises:
        ConfigurationError: it is neither, it is cut short, or an amount is not in US dollars.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    if not text.strip():
        raise ConfigurationError(f"{name} is empty")
    if text.lstrip()[0] in "[{":
        return bill_of_buckets(_buckets(text, name), name)
    return _of_csv(text, name)


def bill_of_buckets(buckets: Iterable[Mapping[str, Any]], name: str) -> VendorBill:
    """Return the bill in the buckets of a vendor's cost API, one for each day.

    Args:
        buckets: as decoded from JSON, with decimals as Decimal.
        name: where they come from, for errors.

    Raises:
        ConfigurationError: a bucket is incomplete, or an amount is not in US dollars.
    """
    vendor, days, amounts = None, set[date](), list[BilledAmount]()
    for bucket in buckets:
        begin = bucket.get("start_time", bucket.get("starting_at"))
        vendor = vendor or ("openai" if "start_time" in bucket else "anthropic")
        day = _day(begin, name)
        days.add(day)
        results = bucket.get("results")
        if not isinstance(results, list):
            raise ConfigurationError(f"{name}: the bucket of {day} has no list of results")
        amounts += (_result(each, day, name) for each in results)
    return VendorBill(vendor, tuple(sorted(days)), tuple(amounts))


def _buckets(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the buckets of all pages in a text."""
    decoder, at, more = json.JSONDecoder(parse_float=Decimal), 0, False
    while at < len(text):
        try:
            page, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigurationError(
                f"{name} is no complete JSON ({error}); save the whole response of the vendor's cost API"
            ) from None
        while at < len(text) and text[at].isspace():
            at += 1
        data = page.get("data") if isinstance(page, Mapping) else page
        more = isinstance(page, Mapping) and page.get("has_more") is True
        if not isinstance(data, list) or not all(isinstance(each, Mapping) for each in data):
            raise ConfigurationError(
                f"{name} has no list 'data' of buckets, as the vendors' cost APIs return it"
            )
        yield from data
    if more:
        raise ConfigurationError(
            f"{name} ends with a page whose 'has_more' is true; append the following pages, or ask for more "
            "days a page (limit)"
        )


def _result(result: Any, day: date, name: str) -> BilledAmount:
    if not isinstance(result, Mapping):
        raise ConfigurationError(f"{name}: a result of {day} is no object")
    amount = result.get("amount")
    if isinstance(amount, Mapping):  # OpenAI
        dollars = _dollars(amount.get("value"), amount.get("currency"), name)
    else:
        dollars = _dollars(amount, result.get("currency"), name) * _CENT
    what = result.get("model") or result.get("line_item") or result.get("description")
    key = next((value for name in _KEY_COLUMNS if isinstance(value := result.get(name), str)), "")
    return BilledAmount(day, _model(what), dollars, key.strip())


def _of_csv(text: str, name: str) -> VendorBill:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    columns = {(column or "").strip().lower(): column for column in reader.fieldnames or ()}
    day_column = _column(columns, _DAY_COLUMNS, "day", name)
    amount_column = _column(columns, _AMOUNT_COLUMNS, "amount", name)
    model_column = next((columns[each] for each in _MODEL_COLUMNS if each in columns), None)
    key_column = next((columns[each] for each in _KEY_COLUMNS if each in columns), None)
    currency = next((columns[each] for each in _CURRENCY_COLUMNS if each in columns), None)
    days, amounts = set[date](), list[BilledAmount]()
    try:
        for row in reader:
            where = f"{name}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ConfigurationError(
                    f"{where} has more or fewer cells than the first line; is the file cut short?"
                )
            day = _day(row[day_column], where)
            days.add(day)
            if row[amount_column].strip():
                dollars = _dollars(row[amount_column], row[currency] if currency else "usd", where)
                model = _model(row[model_column] if model_column else "")
                key = row[key_column].strip() if key_column else ""
                amounts.append(BilledAmount(day, model, dollars, key))
    except csv.Error as error:
        raise ConfigurationError(f"{name}, line {reader.line_num} is no CSV: {error}") from None
    return VendorBill(_vendor_of(columns), tuple(sorted(days)), tuple(amounts))


def _column(columns: Mapping[str, str], names: Iterable[str], what: str, name: str) -> str:
    found = next((columns[each] for each in names if each in columns), None)
    if found is None:
        raise ConfigurationError(
            f"{name} has no column with the {what}: one of {', '.join(names)}; its columns are "
            f"{', '.join(columns)[:200]}"
        )
    return found


def _vendor_of(columns: Mapping[str, str]) -> str | None:
    if any(each in columns for each in _OF_OPENAI):
        return "openai"
    return "anthropic" if any(each in columns for each in _OF_ANTHROPIC) else None


def _day(value: Any, where: str) -> date:
    """Return the day in UTC of seconds since the epoch, or of a date with or without a time."""
    text = value.strip() if isinstance(value, str) else value
    try:
        if isinstance(text, int | Decimal) or (isinstance(text, str) and text.isdecimal()):
            return datetime.fromtimestamp(int(text), UTC).date()
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ConfigurationError(f"{where}: {str(value)[:40]!r} is no date") from None
    return (at if at.tzinfo is None else at.astimezone(UTC)).date()


def _dollars(value: Any, currency: Any, where: str) -> Decimal:
    unit = "usd" if currency is None else str(currency).strip().lower()
    if unit != "usd":
        raise ConfigurationError(
            f"{where}: an amount is in {unit[:10]!r}; only exports in US dollars can be read"
        )
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite():
        raise ConfigurationError(f"{where}: {str(value)[:40]!r} is no amount")
    return amount


def _model(value: Any) -> str:
    """Return the model of a line such as "gpt-5-2025-08-07, input"."""
    return str(value or "").partition(",")[0].strip().lower()
