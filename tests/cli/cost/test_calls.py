"""``specclient cost top`` without matching calls: the hints that it prints."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime, timedelta

from loopback_server import OpenAIServer, reply

from specclient import OpenAI
from specclient.ledger.ledger import Ledger
from specclient.types.call import Call
from specclient.types.route import Decision


def _call(hosted: OpenAIServer) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    hosted.script(reply(200, {"id": "x", "choices": [choice], "usage": usage}))
    with OpenAI() as client:
        client.chat.completions.create(model="mine/m-large", messages=[{"role": "user", "content": "x"}])


def test_top_by_tag_without_tagged_calls_explains_how_to_set_a_tag(run, hosted) -> None:
    assert "No calls yet in" in run("cost", "top", "--by", "tag")[1]
    _call(hosted)
    out = " ".join(run("cost", "top", "--by", "tag")[1].split())
    assert "has a tag; set one with `specclient complete --tag team=search`" in out
    assert "--since 30d" in out
    assert "omit" not in out
    asked = " ".join(run("cost", "top", "--by", "tag", "--since", "7d")[1].split())
    assert "has a tag" in asked
    assert "--since 30d" not in asked
    assert "omit --since" in run("cost", "top", "--by", "tag", "--provider", "openai")[1]


def test_top_says_that_the_default_day_excludes_older_calls(run) -> None:
    then, route = datetime.now(UTC) - timedelta(days=3), Decision("a/b", "a", "b")
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(Call(id="1", started_at=then, operation="chat", model="a/b", route=route, status="ok"))
    for by in ("tag", "model", "call"):
        out = " ".join(run("cost", "top", "--by", by)[1].split())
        assert "started within the last day; --since 30d looks further back" in out
    assert "a/b" in run("cost", "top", "--since", "30d")[1]
