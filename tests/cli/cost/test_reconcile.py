"""``specclient cost reconcile``: the table, the exit code, and what it says about unusable files."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from ledger_fixtures import build_call
from loopback_server import OpenAIServer, reply

from specclient.ledger.ledger import Ledger
from specclient.types.usage import Cost, Usage


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    """Return the path of a bill of $1.00, of a day with a call for $1.25 in the ledger."""
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    call = build_call(
        route="openai/gpt-5", started_at=at, cost=Cost(Decimal("1.25"), source="x"), usage=Usage(1, 1)
    )
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(call)
    path = tmp_path / "costs.csv"
    path.write_text('start_time,amount_value,line_item\n1793491200,1.00,"gpt-5-2025-08-07, input"\n')
    return path


def test_a_difference_is_shown_with_its_cause_and_exits_with_1(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill))
    assert code == 1
    text = " ".join(out.split())
    assert (
        "2026-11-01 gpt-5 1.0000 1.2500 -0.2500 calls that the vendor has not billed, or a lower price"
        in text
    )
    assert (
        "openai, 2026-11-01: billed $1.0000, in the ledger $1.2500; 1 line differs, by -$0.2500 in all "
        "(tolerance $0.005)." in text
    )


def test_a_difference_within_the_tolerance_exits_with_0(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill), "--tolerance", "0.25")
    assert code == 0
    assert "no difference (tolerance $0.25)." in " ".join(out.split())
    assert "1.2500" in run("cost", "reconcile", str(bill), "--tolerance", "0.25", "--all")[1]


def test_keys_are_compared_with_a_tag(run: Any, bill: Path) -> None:
    bill.write_text(
        "start_time,amount_value,line_item,api_key_id\n"
        '1793491200,1.25,"gpt-5-2025-08-07, input",key_1\n1793491200,0.5,"gpt-5, input",key_2\n'
    )
    code, out, _ = run("cost", "reconcile", str(bill), "--by-key", "team", "--key", "key_1=search", "--all")
    text = " ".join(out.split())
    assert code == 1
    assert "2026-11-01 gpt-5 no key – 1.2500 -1.2500" in text
    assert "2026-11-01 gpt-5 search 1.2500 – +1.2500" in text
    assert "2026-11-01 gpt-5 key_2 0.5000 – +0.5000" in text
    code, out, error = run("cost", "reconcile", str(bill), "--key", "key_1=search")
    assert (code, out) == (2, "")
    assert "--key needs --by-key" in error
    code, out, error = run("cost", "reconcile", str(bill), "--by-key", "team", "--key", "key_1")
    assert (code, out) == (2, "")
    assert "'key_1' does not map a key; write BILLED=VALUE" in " ".join(error.split())


def test_a_bill_is_fetched_by_key(run: Any, vendors: OpenAIServer) -> None:
    for vendor, group in (("openai", "api_key_id"), ("anthropic", "workspace_id")):
        vendors.script(reply(200, _page(vendor, [], None)))
        options = ("--since", "2026-11-01", "--until", "2026-11-02", "--by-key", "key")
        run("cost", "reconcile", f"--{vendor}", *options)
        assert group in parse_qs(vendors.requests[-1].query)["group_by[]"]


def test_json_has_exact_amounts(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill), "--json")
    found = json.loads(out)
    assert (code, found["billed"], found["booked"], found["difference"]) == (
        1,
        "1.00",
        "1.250000000",
        "-0.250000000",
    )
    assert found["lines"][0]["model"] == "gpt-5"


@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (
            "date,cost\n2026-11-01,1\n",
            [],
            2,
            "does not tell whose bill it is; name the provider by --provider",
        ),
        ("nothing", [], 3, "has no column with the day"),
        (None, [], 3, "cannot read .*missing.csv"),
        ("date,cost\n", ["--tolerance", "-1"], 2, "is not in the range"),
    ],
)
def test_unusable_arguments_are_one_line(
    run: Any, tmp_path: Path, content: str | None, options: list[str], status: int, message: str
) -> None:
    path = tmp_path / ("missing.csv" if content is None else "costs.csv")
    if content is not None:
        path.write_text(content)
    code, out, err = run("cost", "reconcile", str(path), *options)
    assert code == status
    assert out == ""
    assert re.search(message, " ".join(err.split()))


def _page(vendor: str, amounts: list[str], following: str | None) -> dict[str, Any]:
    if vendor == "openai":
        begin: dict[str, Any] = {"start_time": 1793491200, "end_time": 1793577600}
        results: list[Any] = [
            {"amount": {"value": float(amount), "currency": "usd"}, "line_item": "gpt-5, input"}
            for amount in amounts
        ]
    else:
        begin = {"starting_at": "2026-11-01T00:00:00Z", "ending_at": "2026-11-02T00:00:00Z"}
        results = [{"amount": amount, "currency": "USD", "model": "claude-opus-5"} for amount in amounts]
    return {
        "data": [{**begin, "results": results}],
        "has_more": following is not None,
        "next_page": following,
    }


@pytest.fixture
def vendors(openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenAIServer:
    """Return a server at the addresses of both vendors' cost APIs."""
    config = tmp_path / "vendors.toml"
    config.write_text(
        f'[providers.openai]\nbase_url = "{openai_server.base_url}"\n'
        f'[providers.anthropic]\nbase_url = "{openai_server.base_url}"\n'
    )
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(config))
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-openai")
    monkeypatch.setenv("ANTHROPIC_ADMIN_KEY", "sk-admin-anthropic")
    return openai_server


@pytest.mark.parametrize(
    ("vendor", "path", "query", "key"),
    [
        (
            "openai",
            "/organization/costs",
            {"start_time": ["1793491200"], "end_time": ["1793577600"], "group_by[]": ["line_item"]},
            ("authorization", "Bearer sk-admin-openai"),
        ),
        (
            "anthropic",
            "/organizations/cost_report",
            {
                "starting_at": ["2026-11-01T00:00:00Z"],
                "ending_at": ["2026-11-02T00:00:00Z"],
                "group_by[]": ["description"],
            },
            ("x-api-key", "sk-admin-anthropic"),
        ),
    ],
)
def test_a_bill_is_fetched_with_all_its_pages(
    run: Any, vendors: OpenAIServer, vendor: str, path: str, query: dict[str, list[str]], key: tuple[str, str]
) -> None:
    vendors.script(reply(200, _page(vendor, ["0.25"], "second")), reply(200, _page(vendor, ["100"], None)))
    options = ("--since", "2026-11-01", "--until", "2026-11-02", "--json")
    code, out, err = run("cost", "reconcile", f"--{vendor}", *options)
    assert code == 1, err
    found = json.loads(out)
    assert found["provider"] == vendor
    assert Decimal(found["billed"]) == (Decimal("100.25") if vendor == "openai" else Decimal("1.0025"))
    first, second = vendors.requests
    for request in (first, second):
        assert request.path.endswith(path)
        assert request.headers[key[0]] == key[1]
        assert query.items() <= parse_qs(request.query).items()
    assert "page" not in parse_qs(first.query)
    assert parse_qs(second.query)["page"] == ["second"]
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        assert list(ledger.rows()) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": "none"}, "has no list 'data'; is the address right"),
        ({"data": [1]}, "a bucket in the cost API's answer is no object"),
        ({"data": [], "has_more": True, "next_page": None}, "'has_more' is true, but 'next_page' is None"),
    ],
)
def test_an_unusable_answer_of_a_cost_api_is_one_line(
    run: Any, vendors: OpenAIServer, answer: Any, message: str
) -> None:
    vendors.script(reply(200, answer))
    code, out, err = run("cost", "reconcile", "--openai")
    assert (code, out) == (3, "")
    assert message in " ".join(err.split())


def test_a_cost_api_that_refuses_the_key_is_told_without_the_key(run: Any, vendors: OpenAIServer) -> None:
    vendors.script(reply(401, {"error": {"message": "invalid x-api-key"}}))
    code, _, err = run("cost", "reconcile", "--anthropic")
    assert code != 0
    assert "invalid x-api-key" in err
    assert "sk-admin" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give one of FILE, --openai and --anthropic"),
        (["bill.csv", "--openai"], "Give one of FILE, --openai and --anthropic"),
        (["bill.csv", "--since", "7d"], "--since and --until need --openai or --anthropic"),
    ],
)
def test_a_file_and_a_fetched_bill_exclude_each_other(run: Any, arguments: list[str], message: str) -> None:
    code, _, err = run("cost", "reconcile", *arguments)
    assert code == 2
    assert message in " ".join(err.split())
