"""The store of responses and conversations in several processes at once, in SQLite and PostgreSQL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from forked_program import ForkedProgram

from specclient.ledger.location import locate
from specclient.stored.store import ObjectStore
from specclient.types.stored_limits import StoredLimits

#: Adds items to a conversation, and stores responses, in a process of its own.
PROGRAM = """
import sys
from specclient.ledger.location import locate
from specclient.stored.store import ObjectStore, StoredResponse
from specclient.types.stored_limits import StoredLimits

store = ObjectStore(locate(sys.argv[1]), StoredLimits())
for number in range(20):
    item = {"id": f"msg_{sys.argv[2]}_{number}", "type": "message"}
    response = {"id": f"resp_local_{sys.argv[2]}_{number}", "output": []}
    store.keep("", StoredResponse(response, [item]), "conv_local_1", [item])
"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_two_processes_write_at_once_and_the_next_one_reads_all(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "l.sqlite3") if database == "sqlite" else request.getfixturevalue("postgres_url")
    store = locate(place)
    assert store is not None
    first = ObjectStore(store, StoredLimits())
    first.add_conversation("", {"id": "conv_local_1"}, [])
    first.close()
    running = [ForkedProgram([sys.executable, "-c", PROGRAM, place, name]) for name in "ab"]
    assert [process.wait(120) for process in running] == [0, 0]
    found = first.items("", "conv_local_1", limit=None, newest_first=False)
    assert found is not None
    assert {item["id"] for item in found.items} == {f"msg_{name}_{n}" for name in "ab" for n in range(20)}
    page = first.items("", "conv_local_1", after=found.items[-1]["id"], limit=3, newest_first=True)
    assert page is not None
    assert (page.items, page.has_more) == (found.items[-2:-5:-1], True)
    assert first.response("", "resp_local_a_19") is not None
    first.close()
