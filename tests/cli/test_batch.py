"""``specclient batch``: files, pipes and terminals, exit codes, signals, and kills at random moments."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import forked_program
import pytest
from batch_server import BatchServer, records, write_lines
from batch_vendor import BatchVendor
from forked_program import ForkedProgram
from pseudo_terminal import Terminal

COMMAND = [*forked_program.COMMAND, "batch"]


@pytest.fixture
def server(in_empty_folder: Path) -> Iterator[BatchServer]:
    with BatchServer() as server:
        server.configuration(in_empty_folder)
        yield server


def prompts(count: int, text: str = "p") -> list[dict]:
    return [{"id": f"id-{i}", "prompt": f"{text} {i}"} for i in range(count)]


def test_a_file_is_processed_and_resumed(run, server: BatchServer) -> None:
    write_lines(Path("in.jsonl"), [*prompts(3), {"prompt": "fail 400"}, {"prompt": "fail 400"}, 5])
    code, out, err = run("batch", "in.jsonl", "out.jsonl", "--tag", "team=a", "--max-tokens", "9")
    assert (code, out) == (1, "")
    assert "3 answered · 3 failed · $0.012 · " in err
    assert "2 × BadRequestError: Error code: 400 - no fail 400 (lines 4, 5)" in err
    assert "1 × is not a JSON object (line 6)" in err
    assert {record["output"] for record in records(Path("out.jsonl"))} == {"P 0", "P 1", "P 2", None}
    assert {request.json["max_tokens"] for request in server.requests} == {9}

    code, _, err = run("batch", "in.jsonl", "out.jsonl", "--no-retry-failed")
    assert code == 1
    assert "0 answered · 0 failed · 6 done before" in err
    assert "3 failed in earlier runs" in err

    write_lines(Path("in.jsonl"), prompts(3))
    code, _, err = run("batch", "in.jsonl", "out.jsonl")
    assert code == 0
    assert "0 answered · 0 failed · 3 done before · $0.012" in err
    code, out, _ = run("cost", "report", "--by", "tag:team", "--json")
    assert code == 0
    assert '"a"' in out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--max-cost", "0.01"], 5, "run it again with a higher limit"),
        (["--max-cost", "1", "-m", "mine/other"], 3, "no price is known for mine/other"),
        (["--policy", "cheap", "-m", "mine/m"], 2, "a policy chooses the model"),
        (["--policy", "none"], 3, "no policy named 'none'"),
        (["--concurrency", "0"], 2, "--concurrency"),
        (["--on", "ray", "-m", "mine/m"], 2, "and -m mine/m names none; add a table [fleets.NAME]"),
        (["--on", "ray"], 2, "--on ray needs -m FLEET/auto or FLEET/POOL with a fleet, and -m is not given"),
        (["--on", "ray", "-m", "big/auto", "--job"], 2, "--on ray cannot be given with --job"),
    ],
)
def test_errors_have_their_exit_codes(
    run, server: BatchServer, options: list[str], code: int, message: str
) -> None:
    write_lines(Path("in.jsonl"), [{**line, "max_tokens": 2} for line in prompts(9)])
    got, _, err = run("batch", "in.jsonl", "out.jsonl", *options)
    assert got == code
    assert message in err


def test_unusable_files_are_errors(run, server: BatchServer) -> None:
    write_lines(Path("in.jsonl"), prompts(1))
    for arguments, message in (
        (("nowhere", "out.jsonl"), "there is no file nowhere"),
        (("in.jsonl", "in.jsonl"), "is the source"),
        (("in.jsonl", "no/folder/out"), "cannot write no/folder/out"),
    ):
        code, _, err = run("batch", *arguments)
        assert code == 3
        assert message in err


def test_stdin_and_stdout_can_be_pipes(shell, server: BatchServer) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in prompts(20))
    done = shell("batch", "-", "-", "--ordered", input=lines)
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"id-{i}" for i in range(20)]
    assert "20 answered · 0 failed" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_closed_output_pipe_ends_the_batch_quietly(server: BatchServer) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in prompts(2000))
    Path("in.jsonl").write_text(lines)
    with ForkedProgram(
        [*COMMAND, "in.jsonl", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_lines_are_answered_while_stdin_is_open(server: BatchServer) -> None:
    with ForkedProgram(
        [*COMMAND, "-", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for name in ("one", "two"):
            process.stdin.write(json.dumps({"prompt": name}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["output"] == name.upper()
        process.send_signal(signal.SIGINT)  # while it waits for input
        assert process.wait(60) == 130
        assert b"interrupted; run it again" in process.stderr.read()


def test_a_terminal_shows_the_progress(server: BatchServer) -> None:
    server.gap = 0.2
    write_lines(Path("in.jsonl"), prompts(30))
    terminal = Terminal("batch", "in.jsonl", "out.jsonl", "--concurrency", "4")
    seen = terminal.read_until(lambda output: " lines · " in output and "/s · $0.0" in output)
    assert "━" in seen
    assert terminal.wait() == 0
    assert "30 answered · 0 failed" in terminal.output
    assert len(records(Path("out.jsonl"))) == 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_requests_in_flight_finish(server: BatchServer, number: signal.Signals) -> None:
    server.gap = 0.3
    write_lines(Path("in.jsonl"), prompts(100))
    with ForkedProgram([*COMMAND, "in.jsonl", "out.jsonl"], stderr=subprocess.PIPE) as process:
        wait_until(lambda: sum(server.request_counts.values()) >= 12)
        process.send_signal(number)
        assert process.wait(60) == 130
        output = process.stderr.read().decode()
    assert "in flight have 30 s" in output
    assert "interrupted; run it again to resume" in output
    assert Counter(r["id"].replace("id-", "p ") for r in records(Path("out.jsonl"))) == server.request_counts


def test_a_second_signal_ends_the_batch_at_once(server: BatchServer) -> None:
    server.gap = 60
    write_lines(Path("in.jsonl"), prompts(10))
    with ForkedProgram([*COMMAND, "in.jsonl", "out.jsonl"], stderr=subprocess.PIPE) as process:
        wait_until(lambda: sum(server.request_counts.values()) >= 8)
        process.send_signal(signal.SIGINT)
        assert b"stopping" in process.stderr.readline() + process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert records(Path("out.jsonl")) == []


def check_kills_and_resume(
    server: BatchServer, kills: int, lines: int, concurrency: int, *options: str
) -> None:
    """Kill a batch at random moments, then finish it; check that no line is lost and few are repeated."""
    server.gap = 0.002
    write_lines(Path("in.jsonl"), [*prompts(lines), {"id": "bad", "prompt": "fail 400"}])
    rng = random.Random(lines + kills)
    command = [*COMMAND, "in.jsonl", "out.jsonl", "--concurrency", str(concurrency), *options]
    killed = 0
    for _ in range(kills):
        before = sum(server.request_counts.values())
        wanted = before + rng.randrange(1, max(lines // kills, 2))
        with ForkedProgram(command, stderr=subprocess.DEVNULL) as process:
            wait_until(
                lambda n=wanted, p=process: sum(server.request_counts.values()) >= n or p.poll() is not None
            )
            time.sleep(rng.random() * 0.01)
            killed += process.poll() is None
            process.kill()
    done = forked_program.run(command)
    assert done.returncode == 1, done.stderr  # one line fails
    ids = Counter(record["id"] for record in records(Path("out.jsonl")) if record["error"] is None)
    assert ids == Counter(f"id-{i}" for i in range(lines))
    assert len(records(Path("out.jsonl"))) == lines + 1
    again = sum(count - 1 for prompt, count in server.request_counts.items() if prompt != "fail 400")
    assert killed
    assert again <= killed * concurrency


@pytest.fixture
def vendor(in_empty_folder: Path) -> Iterator[BatchVendor]:
    with BatchVendor() as vendor:
        Path("specclient.toml").write_text(
            f'[providers.mine]\nbase_url = "{vendor.base_url}"\nprice_provider = "openai"\n'
        )
        yield vendor


JOB = ["batch", "in.jsonl", "out.jsonl", "--job", "-m", "mine/gpt-5", "--poll", "0.01"]


def test_lines_are_sent_as_a_job(run, vendor: BatchVendor) -> None:
    write_lines(Path("in.jsonl"), prompts(3))
    code, _, err = run(*JOB)
    assert code == 0
    assert "3 answered · 0 failed · $0.00338" in err
    assert json.loads(run("cost", "report", "--by", "tier,tag:batch", "--json")[1])["lines"][0]["calls"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in", "out", "--job", "--ordered"], "--job cannot be given with --ordered: "),
        (["in", "out", "--job", "--policy", "fast"], "--job cannot be given with --policy fast, "),
        (["in", "-", "--job"], "OUT is -, and --job needs a file"),
        (["in", "out", "--poll", "5"], "--poll is for --job; pass --job, or leave it out."),
    ],
    ids=str,
)
def test_options_that_jobs_cannot_have_are_refused_by_name(run, words: list[str], message: str) -> None:
    code, _, err = run("batch", *words)
    assert code == 2
    assert message in err


def test_killed_runs_with_jobs_send_and_book_each_line_once(run, vendor: BatchVendor) -> None:
    vendor.looks = 2
    write_lines(Path("in.jsonl"), prompts(20))
    rng, killed = random.Random(5), 0
    for _ in range(8):
        before = len(vendor.requests)
        with ForkedProgram([*forked_program.COMMAND, *JOB], stderr=subprocess.DEVNULL) as process:
            wait_until(lambda n=before, p=process: len(vendor.requests) > n or p.poll() is not None)
            time.sleep(rng.random() * 0.03)
            killed += process.poll() is None
            process.kill()
    assert run(*JOB)[0] == 0
    assert killed
    assert sum(len(lines) for lines in vendor.lines.values()) == 20
    assert Counter(record["id"] for record in records(Path("out.jsonl"))) == Counter(
        f"id-{i}" for i in range(20)
    )
    (total,) = json.loads(run("cost", "report", "--by", "tier", "--json")[1])["lines"]
    assert (total["calls"], float(total["cost"])) == (20, 0.0225)


@pytest.mark.parametrize("options", [[], ["--ordered"]], ids=["as finished", "ordered"])
def test_kills_lose_nothing_and_repeat_little(server: BatchServer, options: list[str]) -> None:
    check_kills_and_resume(server, 5, 400, 8, *options)


@pytest.mark.soak
def test_many_kills_lose_nothing_and_repeat_little(server: BatchServer) -> None:
    check_kills_and_resume(server, 60, 30_000, 32)


def test_memory_does_not_grow_with_the_file(server: BatchServer) -> None:
    """Lines that an earlier run finished are only read, and take hardly any memory."""
    wide = "x" * 2000
    with Path("in.jsonl").open("w") as lines, Path("out.jsonl").open("w") as out:
        for i in range(30_000):  # 60 MB per file
            lines.write(json.dumps({"id": f"id-{i}", "prompt": wide}) + "\n")
            if i >= 100:
                record = {"id": f"id-{i}", "output": wide, "usage": None, "cost": "0.001", "error": None}
                out.write(json.dumps(record) + "\n")
    small, _ = peak_memory("small.jsonl", "small.out", lines=100)
    large, stderr = peak_memory("in.jsonl", "out.jsonl")
    assert "100 answered · 0 failed · 29900 done before" in stderr
    assert large < small + 12_000_000


def peak_memory(source: str, out: str, lines: int = 0) -> tuple[int, str]:
    """Run a batch in a subprocess; return its peak memory in bytes, and its stderr."""
    if lines:
        write_lines(Path(source), [{"prompt": "x" * 2000} for _ in range(lines)])
    code = (
        "import sys; from specclient_cli.main import run; run(sys.argv[1:])\n"
        "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, "batch", source, out]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024), done.stderr


def wait_until(holds: Callable[[], bool], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)
