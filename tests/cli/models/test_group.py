"""``specclient models``: known facts of providers and models, probes, and stored probe results."""

from __future__ import annotations

import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, Received, Wire, reply
from pseudo_terminal import Terminal, replay

from specclient import OpenAI
from specclient.providers import PRESETS, Endpoint

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
Fields = dict[str, Any]


class Server:
    """The behaviour of a server under a probe; calling it answers one request.

    Args:
        counts: token counts for a prediction, given whether the request has a valid one; None omits them.
        refuses: fields whose presence is answered with 400.
        checks: whether a malformed prediction is refused.
        scores: extra fields of a completion's response, given the request's body.
        beside: extra fields of every chat response.
        says: the text of a response, given the request's messages.
    """

    def __init__(
        self,
        *,
        counts: Callable[[bool], Fields | None] = lambda _: None,
        refuses: tuple[str, ...] = (),
        checks: bool = False,
        scores: Callable[[Any], Fields] = lambda _: {},
        beside: Fields | None = None,
        says: Callable[[Any], str] = lambda _: "one",
        completions: bool = True,
    ) -> None:
        self.counts, self.refuses, self.checks, self.scores = counts, refuses, checks, scores
        self.beside, self.says, self.completions = beside or {}, says, completions

    async def __call__(self, received: Received, wire: Wire) -> None:
        asked = received.json
        for name in self.refuses:
            if name in asked:
                return await self.refuse(f"unknown field {name}")(received, wire)
        given = asked.get("prediction")
        good = given is not None and given.get("type") == "content"
        if given is not None and self.checks and not good:
            return await self.refuse("prediction.type must be content")(received, wire)
        if received.path.endswith("/chat/completions"):
            usage = {"prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32}
            counts = self.counts(good)
            body = {
                "model": asked["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": self.says(asked["messages"])},
                    }
                ],
                "usage": usage if counts is None else {**usage, "completion_tokens_details": counts},
                **self.beside,
            }
            return await reply(200, body)(received, wire)
        if not self.completions:
            return await reply(404, {"error": {"message": "no such route"}})(received, wire)
        choice = {"index": 0, "text": " nine", "finish_reason": "length", **self.scores(asked)}
        extra = choice.pop("top", {})
        return await reply(200, {"model": asked["model"], "choices": [choice], **extra})(received, wire)

    @staticmethod
    def refuse(words: str) -> Callable[[Received, Wire], Awaitable[None]]:
        return reply(400, {"error": {"message": words, "type": "invalid_request_error"}})


def counts(accepted: Any, rejected: Any) -> Fields:
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def ranks(asked: Any) -> Fields:
    """vLLM's ``prompt_logprobs``, if the request asks for them."""
    if not asked.get("prompt_logprobs"):
        return {}
    row = {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "x"}}
    return {"prompt_logprobs": [None, *[row] * (len(WORDS) - 1)]}


def echoed(asked: Any) -> Fields:
    """The legacy ``echo`` with ``logprobs``."""
    if not asked.get("echo"):
        return {}
    scores = [None, *[-0.5] * len(WORDS)]
    return {
        "text": f"{asked['prompt']} nine",
        "logprobs": {"tokens": [*WORDS, "nine"], "token_logprobs": scores},
    }


def last_echoed(asked: Any) -> Fields:
    """Fireworks' ``echo_last``."""
    return {"logprobs": {"token_logprobs": [-0.5] * (asked.get("echo_last", 0) + 1)}}


@pytest.fixture
def probe(run, hosted: OpenAIServer, in_empty_folder: Path) -> Callable[..., Any]:
    """Probe a server of the given behaviour; return the printed JSON."""

    now: list[Server] = []

    async def current_server(received: Received, wire: Wire) -> None:
        await now[-1](received, wire)

    def probing(server: Server, *arguments: str, model: str = "mine/m-large", capabilities: str = "") -> Any:
        now.append(server)
        file = in_empty_folder / "specclient.toml"
        if capabilities:
            file.write_text(f"{file.read_text()}[providers.mine.capabilities]\n{capabilities}\n")
        hosted.script(*[current_server] * 6)
        code, out, err = run("models", "probe", model, "--json", *arguments)
        assert code == 0, err
        return json.loads(out)

    return probing


def outcome(report: Any, name: str = "prediction") -> str:
    found: str = report["findings"][name]["outcome"]
    return found


# --- predictions


@pytest.mark.parametrize(
    ("server", "expected", "known"),
    [
        (Server(counts=lambda good: counts(8, 1) if good else counts(0, 0)), "honoured", True),
        (Server(counts=lambda good: counts(8, 1) if good else None), "honoured", True),
        (Server(counts=lambda _: counts(0, 0), checks=True), "honoured", True),
        (Server(), "ignored", False),
        (Server(counts=lambda _: counts(0, 0)), "ignored", False),  # a gateway's zeros
        (Server(counts=lambda _: counts(8, 1)), "ignored", False),  # reported for any request
        (
            Server(counts=lambda good: counts(900, 1) if good else None),
            "ignored",
            False,
        ),  # more than the 12 generated tokens
        (Server(counts=lambda _: counts("many", None)), "ignored", False),
        (Server(counts=lambda _: counts(-3, 4)), "ignored", False),
        (Server(checks=True), "untelemetered", None),
        (Server(refuses=("prediction",)), "refused", False),
        (Server(refuses=("max_tokens",)), "unknown", None),
    ],
    ids=[
        "counts",
        "counts of it alone",
        "zeros, checked",
        "nothing",
        "zeros for anything",
        "the same for anything",
        "more than generated",
        "half-broken",
        "negative",
        "checked, silent",
        "refused",
        "refused anyway",
    ],
)
def test_a_prediction_probe_reports_the_servers_behaviour(
    probe, server: Server, expected: str, known: bool | None
) -> None:
    report = probe(server)
    assert outcome(report) == expected, report
    assert report["capabilities"].get("prediction") == known
    assert expected == "honoured" or "telemetry" not in report["capabilities"]
    assert report["requests"] <= 5


def test_a_refusal_quotes_the_servers_message(probe) -> None:
    report = probe(Server(refuses=("prediction",)))
    assert report["findings"]["prediction"]["evidence"] == "400: unknown field prediction"


# --- scores of a prompt


@pytest.mark.parametrize(
    ("server", "expected", "form"),
    [
        (Server(scores=ranks), "honoured", "prompt_logprobs"),
        (Server(scores=echoed), "honoured", "echo"),
        (Server(scores=echoed, refuses=("prompt_logprobs",)), "honoured", "echo"),
        (
            Server(
                scores=lambda _: {"top": {"prompt": [{"logprobs": {"token_logprobs": [None, *[-1] * 8]}}]}}
            ),
            "honoured",
            "echo",
        ),  # Together's form
        (Server(), "ignored", False),
        (Server(scores=lambda _: {"logprobs": {"token_logprobs": [-0.1]}}), "ignored", False),
        (Server(scores=lambda asked: {"text": f"{asked['prompt']} nine"}), "ignored", False),
        (Server(scores=lambda _: {"prompt_logprobs": [None] * 8}), "ignored", False),
        (
            Server(scores=lambda _: {"prompt_logprobs": [None, {"7": {"logprob": "-1"}}] * 4}),
            "ignored",
            False,
        ),
        (Server(completions=False), "refused", False),
        (Server(refuses=("prompt",)), "refused", False),
    ],
)
def test_a_verification_probe_finds_the_form_of_prompt_scores(
    probe, server: Server, expected: str, form: str | bool
) -> None:
    report = probe(server)
    assert outcome(report, "verification") == expected, report
    assert report["capabilities"]["verification"] == form


def test_only_the_known_form_of_verification_is_probed(probe, hosted: OpenAIServer) -> None:
    report = probe(Server(scores=last_echoed), capabilities='verification = "echo_last"')
    assert (outcome(report, "verification"), report["capabilities"]["verification"]) == (
        "honoured",
        "echo_last",
    )
    assert [request.json.get("echo_last") for request in hosted.requests][-1] == 4


@pytest.mark.parametrize("configured", ["false", '"tgi"'])
def test_verification_is_not_probed_if_its_absence_or_form_is_known(
    probe, hosted: OpenAIServer, configured: str
) -> None:
    report = probe(Server(), capabilities=f"verification = {configured}")
    assert outcome(report, "verification") == "unknown"
    assert "verification" not in report["capabilities"]
    assert {request.path for request in hosted.requests} == {"/v1/chat/completions"}


def test_a_dialect_without_completions_is_not_probed_for_verification(
    run, hosted: OpenAIServer, in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    (in_empty_folder / "specclient.toml").write_text(
        f'[providers.anthropic]\nbase_url = "{hosted.base_url}"\n'
    )
    answer = {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "extra inputs"}}
    hosted.script(reply(400, refused), reply(200, answer))
    code, out, err = run("models", "probe", "anthropic/m", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (outcome(report), outcome(report, "verification")) == ("refused", "unknown")
    assert report["requests"] == len(hosted.requests) == 2


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "claude-opus-5"])
def test_a_model_on_vertex_is_probed_in_its_own_dialect(
    run, hosted: OpenAIServer, in_empty_folder: Path, model: str
) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        f'[providers.vertex]\nbase_url = "{hosted.url}"\nproject = "p-1"\napi_key = "ya29.probe"\n'
        'key_header = "authorization"\n'
    )
    claude = {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}
    gemini = {"candidates": [{"content": {"parts": [{"text": "one"}]}, "finishReason": "STOP"}]}
    refused = {"error": {"code": 400, "message": "Unknown name: prediction", "status": "INVALID_ARGUMENT"}}
    hosted.script(reply(400, refused), reply(200, gemini if model.startswith("gemini") else claude))
    code, out, err = run("models", "probe", f"vertex/{model}", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (outcome(report), outcome(report, "verification")) == ("refused", "unknown")
    assert all(f"/models/{model}:" in request.path for request in hosted.requests)


# --- telemetry and unfinished turns


def test_received_telemetry_is_named(probe) -> None:
    report = probe(Server(beside={"timings": {"draft_n": 10, "draft_n_accepted": 7}}))
    assert report["capabilities"]["telemetry"] == ["llamacpp"]
    broken = probe(Server(beside={"timings": {"draft_n": "ten", "draft_n_accepted": -7}}))
    assert "telemetry" not in broken["capabilities"]
    assert outcome(broken, "telemetry") == "unknown", "missing telemetry proves nothing"


@pytest.mark.parametrize(
    ("says", "expected", "known"),
    [
        ("seven eight nine ten", "honoured", "assistant"),
        ("Sure: four five six seven eight", "honoured", "assistant"),  # llama.cpp may repeat the prefill
        ("one two three", "ignored", False),
        ("", "ignored", False),
    ],
)
def test_a_prefill_probe_finds_whether_an_unfinished_turn_is_continued(
    probe, says: str, expected: str, known: Any
) -> None:
    report = probe(Server(says=lambda _: says), "--prefill")
    assert outcome(report, "prefill") == expected
    assert report["capabilities"]["prefill"] == known
    assert report["requests"] == 5


# --- costs and errors


def test_probe_calls_are_in_the_ledger_with_their_tag(probe, run, hosted: OpenAIServer) -> None:
    report = probe(Server(scores=ranks))
    with OpenAI() as client:
        rows = client.ledger.rows()
    assert [row.tags for row in rows] == [
        {"probe": "prediction"},
        {"probe": "malformed prediction"},
        {"probe": "prompt_logprobs"},
    ]
    assert float(report["cost"]) == pytest.approx(sum(float(row.cost) for row in rows))
    assert sum(request.json["max_tokens"] for request in hosted.requests) <= 5 * 16


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        (reply(401, {"error": {"message": "who?"}}), 1, "401"),
        (reply(404, {"error": {"message": "no model m-large"}}), 1, "no model m-large"),
        (reply(200, b"<html>"), 1, "does not match the API"),
    ],
)
def test_a_failed_probe_is_an_error_and_stores_nothing(
    run, hosted: OpenAIServer, clean_home: Path, behaviour: Any, code: int, words: str
) -> None:
    hosted.script(*[behaviour] * 6)
    found, out, err = run("models", "probe", "mine/m-large")
    assert (found, out) == (code, "")
    assert words in err
    assert not list(clean_home.rglob("probes.json")), "a failed probe must store nothing"


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        ("local/demo", 3, "runs in this process"),
        ("nobody/m", 1, "unknown provider 'nobody'"),
        ("openai/gpt-4.1", 3, "OPENAI_API_KEY"),
        ("baseten/m", 3, "provider 'baseten' has no address"),
        ("vertex/meta/m", 1, "Vertex AI's models of google and anthropic are served"),
        ("auto", 2, "auto stands for several models"),
    ],
)
def test_a_model_that_cannot_be_probed_is_an_error(run, model: str, code: int, words: str) -> None:
    found, out, err = run("models", "probe", model)
    assert (found, out) == (code, "")
    assert words in err


# --- stored results


def test_a_result_is_stored_by_url_and_model(probe, run, hosted: OpenAIServer, clean_home: Path) -> None:
    report = probe(Server(counts=lambda good: counts(8, 1) if good else counts(0, 0), scores=ranks))
    file = Path(report["file"])
    assert file.is_relative_to(clean_home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(json.loads(file.read_text())) == [hosted.base_url]
    with OpenAI() as client:
        place = client.pipeline.destinations.get("mine")
    assert isinstance(place, Endpoint)
    assert place.capabilities.prediction is None
    known = place.capabilities_of("m-large")
    assert (known.prediction, known.verification) == (True, "prompt_logprobs")
    assert place.capabilities_of("m-small").prediction is None
    _, out, _ = run("models", "show", "mine/m-large")
    assert "honoured: 8 predicted tokens accepted, 1 rejected" in out
    assert report["at"][:10] in out
    shown = json.loads(run("models", "show", "mine/m-large", "--json")[1])
    assert shown["capabilities"]["prediction"] is True
    assert shown["probe"]["at"] == report["at"]


def test_a_later_result_replaces_the_earlier_one(probe) -> None:
    assert probe(Server(scores=ranks))["capabilities"]["verification"] == "prompt_logprobs"
    probe(Server())
    with OpenAI() as client:
        place = client.pipeline.destinations.get("mine")
    assert isinstance(place, Endpoint)
    assert place.capabilities_of("m-large").verification is False


def test_configured_capabilities_override_probe_results(probe) -> None:
    probe(Server(), capabilities="prediction = true")
    with OpenAI() as client:
        place = client.pipeline.destinations.get("mine")
    assert isinstance(place, Endpoint)
    assert place.capabilities_of("m-large").prediction is True


def test_the_results_file_can_be_changed_or_turned_off(
    probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run, hosted
) -> None:
    monkeypatch.setenv("SPECCLIENT_PROBES", str(tmp_path / "new" / "mine.json"))
    assert probe(Server())["file"] == str(tmp_path / "new" / "mine.json")
    monkeypatch.setenv("SPECCLIENT_PROBES", "OFF")
    assert probe(Server())["file"] is None
    (tmp_path / "a-file").write_text("")
    monkeypatch.setenv("SPECCLIENT_PROBES", str(tmp_path / "a-file" / "x.json"))
    hosted.script(*[Server()] * 6)
    code, _, err = run("models", "probe", "mine/m-large")
    assert (code, err.count("\n")) == (3, 1)
    assert "SPECCLIENT_PROBES" in err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"URL": 3}',
        '{"URL": {"m-large": 3}}',
        '{"URL": {"m-large": {"at": "never", "outcomes": {}, "capabilities": {}}}}',
        '{"URL": {"m-large": {"at": "2026-01-01", "outcomes": {}, "capabilities": {"prediction": "maybe"}}}}',
        '{"URL": {"m-large": {"at": "2026-01-01", "outcomes": {}, "capabilities": {"new_field": 1}}}}',
        "[" * 100_000,
    ],
)
def test_an_invalid_results_file_is_ignored(
    run, hosted: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "probes.json"
    file.write_text(text.replace("URL", hosted.base_url))
    monkeypatch.setenv("SPECCLIENT_PROBES", str(file))
    code, out, _ = run("models", "show", "mine/m-large")
    assert code == 0
    assert "mine/m-large" in out
    with OpenAI() as client:
        assert client.chat.completions.create(
            model="mine/m-large", messages=[{"role": "user", "content": "x"}]
        )


# --- output


def test_every_provider_is_listed_with_its_capabilities(run) -> None:
    code, out, _ = run("models")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    for word in ("prediction, speculation", "fireworks", "completions", "echo_last", "catalogue", "openai"):
        assert word in lines["fireworks"]
    assert "unknown" in lines["holysheep"]
    values = {row["name"]: row for row in json.loads(run("models", "--json")[1])["providers"]}
    assert set(values) == set(PRESETS)
    assert values["vllm"]["capabilities"]["verification"] == "prompt_logprobs"
    assert values["mistral"]["capabilities"]["prefill"] == "prefix"
    assert values["holysheep"]["capabilities"]["prediction"] is None
    assert (values["openai"]["prices"], values["vllm"]["prices"]) == ("catalogue", None)
    assert values["anthropic"]["dialect"] == "anthropic"


def test_credentials_of_a_cloud_are_listed_like_keys(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> Any:
        rows = json.loads(run("models", "--json")[1])["providers"]
        return next(row["key"] for row in rows if row["name"] == "vertex")

    assert listed() == "not set"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p-1")
    assert listed() == "credentials"
    monkeypatch.setenv("VERTEX_API_KEY", "AQ.k")
    assert listed() == "set"


def test_a_missing_base_url_is_reported(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "k")
    values = {row["name"]: row for row in json.loads(run("models", "--check", "--json")[1])["providers"]}
    assert (values["baseten"]["key"], values["baseten"]["check"]) == ("set, no base URL", None)


def test_configured_prices_are_shown(run, hosted: OpenAIServer) -> None:
    values = {row["name"]: row for row in json.loads(run("models", "--json")[1])["providers"]}
    assert values["mine"]["prices"] == "own"
    shown = json.loads(run("models", "show", "mine/m-large", "--json")[1])
    assert {kind: float(rate) for kind, rate in shown["prices"].items()} == {"input": 2.0, "output": 8.0}
    assert "$2 per million tokens" in run("models", "show", "mine/m-large")[1]
    assert json.loads(run("models", "show", "mine/other", "--json")[1])["prices"] == {
        "input": None,
        "output": None,
    }
    assert not hosted.requests


def test_a_local_model_is_shown(run, local: Path) -> None:
    assert "method   draft" in run("models", "show", "local/demo")[1]
    assert json.loads(run("models", "show", "local/demo", "--json")[1])["method"] == "draft"
    code, _, err = run("models", "show", "local/none")
    assert code == 1
    assert "local/demo" in err


@pytest.mark.parametrize("width", [40, 60, 80, 120, 280])
@pytest.mark.parametrize("words", ["models", "models show openai/gpt-4.1"])
def test_tables_fit_narrow_terminals(width: int, words: str) -> None:
    terminal = Terminal(*words.split(), width=width, height=60, NO_COLOR="1")
    assert terminal.wait() == 0
    lines = [line for line in replay(terminal.output, width) if line]
    assert all(len(line) <= width for line in lines)
    if words == "models":
        assert any(line.startswith("transformers") for line in lines)
        assert ("base URL" in terminal.output) == (width >= 280)


def test_a_probe_prints_a_table_in_a_pipe_and_in_a_terminal(run, hosted: OpenAIServer) -> None:
    hosted.script(*[Server(scores=ranks)] * 6)
    code, out, _ = run("models", "probe", "mine/m-large")
    assert code == 0
    report = {line.split()[0]: line for line in out.splitlines() if line}
    assert report["prediction"].split()[1] == "ignored"
    assert report["verification"].split()[1] == "honoured"
    assert report["3"].startswith("3 requests for $")
    hosted.script(*[Server(scores=ranks)] * 6)
    terminal = Terminal("models", "probe", "mine/m-large", width=40, NO_COLOR="1")
    assert terminal.wait() == 0
    assert all(len(line) <= 40 for line in replay(terminal.output, 40))


def test_options_before_a_subcommand_are_a_usage_error(run) -> None:
    code, _, err = run("models", "--json", "show", "openai/x")
    assert code == 2
    assert "put the options of `models show` after its name" in err


@pytest.mark.parametrize("words", ["models", "models show mine/m", "config show", "config check"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_key_in_a_base_url_is_never_shown(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, form: list[str]
) -> None:
    file = tmp_path / "keyed.toml"
    file.write_text('[providers.mine]\nbase_url = "http://127.0.0.1:9/v1?key=sk-secret"\n')
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(file))
    code, out, err = run(*words.split(), *form)
    assert code == 0
    assert "http://127.0.0.1:9/v1" in out
    assert "sk-secret" not in out + err
