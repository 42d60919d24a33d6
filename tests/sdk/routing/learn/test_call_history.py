"""Earlier calls are read from the ledger once, and a ledger that cannot be read is no obstacle."""

from __future__ import annotations

from datetime import timedelta

from finished_calls import NOW, about, call, estimates

from specclient.errors import LedgerError
from specclient.ledger.ledger import Ledger
from specclient.routing.learn.call_history import MEMORY


def test_earlier_calls_are_read_from_the_ledger_once_and_newer_ones_count_once(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite3"))
    ledger.submit(call("long ago", started_at=NOW - MEMORY - timedelta(days=1), latency_s=50.0))
    ledger.submit(call("yesterday", started_at=NOW - timedelta(days=1), latency_s=3.0))
    both = call("both", latency_s=1.0)
    ledger.submit(both)
    made = estimates(both, history=ledger)
    known = made.predict("x/y")
    assert (known.latency_s, known.evidence) == (about(1.0), 2), "newer calls weigh more"
    ledger.submit(call("by another process", latency_s=90.0))
    assert made.predict("x/y").evidence == 2
    ledger.close()


def test_an_unreadable_ledger_only_logs_a_warning(caplog):
    class Broken:
        def rows(self, since=None, until=None, *, limit=None):
            raise LedgerError("cannot open the ledger /x; set SPECCLIENT_LEDGER")

    made = estimates(call(), history=Broken())
    assert made.predict("x/y").evidence == 1
    made.predict("x/y")
    (warning,) = caplog.records
    assert "routing starts without earlier calls: cannot open the ledger /x" in warning.getMessage()
