"""Grammars are tried out in a process of their own: a crash there is an error here, and nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings

import pytest
from hostile_grammars import chained_choices, chained_references, chained_rules
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.grammar_prover import grammar_prover
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.grammar_bounds import check_grammar
from specclient_local.request.params import SamplingParams
from tiny_models import byte_tokenizer, load

from specclient.errors import BadRequestError
from specclient.types.request_limits import RequestLimits

LARGE = {
    "grammar_bytes": 2**30,
    "grammar_rules": 2**30,
    "grammar_chain": 2**30,
    "grammar_alternatives": 2**30,
    "grammar_repetitions": 2**30,
}
END = [1]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.fixture
def compiler(tokens):
    """Make compilers with limits; memory is a key of the process, so each test has one of its own."""
    made = []

    def make(**limits):
        made.append(GrammarCompiler(tokens, 300, END, RequestLimits(**limits)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def memory():
    """Return a limit of memory that no other test uses."""
    memory.last += 1
    return 2**30 + memory.last * 4096


memory.last = 0


@pytest.mark.parametrize(
    "asked",
    [
        {"grammar": chained_rules(20_000)},
        {"json_schema": chained_references(5_000)},
        {"json_schema": chained_choices(20_000)},
    ],
    ids=["rules", "references", "choices"],
)
def test_a_grammar_that_crashes_its_compiler_is_refused(compiler, asked):
    """The limits are raised, so that nothing else refuses it."""
    room = memory()
    compile_, params = compiler(**LARGE, grammar_memory_bytes=room, grammar_s=60.0), SamplingParams(**asked)
    (kind,) = asked
    with pytest.raises(
        BadRequestError, match=f"{kind} makes its compiler crash .SIG.*make it simpler"
    ) as first:
        compile_.grammar(params, END)
    assert (first.value.param, first.value.code) == (kind, "grammar_too_large")
    prover = grammar_prover(room)
    assert prover.pid is None
    with pytest.raises(BadRequestError, match="crash"):
        compile_.grammar(params, END)
    assert prover.pid is None, "the verdict is kept, and nothing crashes again"
    assert compile_.grammar(SamplingParams(grammar=chained_rules(300)), END) is not None
    assert prover.pid is not None


def test_a_grammar_that_takes_too_long_is_refused(compiler):
    room = memory()
    compile_ = compiler(**LARGE, grammar_memory_bytes=room, grammar_s=0.05)
    with pytest.raises(BadRequestError, match=r"takes more than 0.05 s to compile: .* raise grammar_s in"):
        compile_.grammar(SamplingParams(regex="a{5000000}"), END)


def test_the_process_stays_for_the_next_grammar_and_is_not_asked_twice(compiler, monkeypatch):
    measured = []

    def check(kind, text, limits):
        measured.append(text)
        return check_grammar(kind, text, limits)

    monkeypatch.setattr("specclient_local.model.grammar.check_grammar", check)
    room = memory()
    compile_, prover = compiler(grammar_memory_bytes=room), grammar_prover(room)
    assert compile_.grammar(SamplingParams(regex="a{9}"), END) is not None
    assert prover.pid is None, "a small grammar needs no process"
    large = SamplingParams(regex="(?:abc|d)" * 300)
    assert not compile_.is_proven(large)
    assert compile_.grammar(large, END) is not None
    pid = prover.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # an answer would never come
    try:
        assert compile_.is_proven(large)
        assert compile_.grammar(large, END) is not None
    finally:
        os.kill(pid, signal.SIGCONT)
    assert compile_.grammar(SamplingParams(regex="(?:abc|d)" * 301), END) is not None
    assert prover.pid == pid
    assert len(measured) == len(set(measured)) == 3


def test_a_process_that_was_killed_is_replaced(compiler):
    room = memory()
    compile_, prover = compiler(grammar_memory_bytes=room), grammar_prover(room)
    compile_.prove(SamplingParams(regex="(?:abc|d)" * 300))
    pid = prover.pid
    os.kill(pid, signal.SIGKILL)
    compile_.prove(SamplingParams(regex="(?:abc|d)" * 302))
    assert prover.pid not in (None, pid)


def test_closing_the_last_engine_ends_the_process(checkpoint):
    room = memory()
    limits, prover = RequestLimits(grammar_memory_bytes=room), grammar_prover(room)
    regex = "(?:abc|d)" * 300
    with load(checkpoint(), request_limits=limits) as one:
        with load(checkpoint(), request_limits=limits) as other:
            for engine in (one, other):
                engine.generate("x", max_tokens=2, regex=regex + "e" * (engine is other))
            pid = prover.pid
        assert prover.pid == pid
    assert prover.pid is None


def test_a_forked_child_starts_its_own_process(compiler):
    room = memory()
    compile_, prover = compiler(grammar_memory_bytes=room), grammar_prover(room)
    compile_.prove(SamplingParams(regex="(?:abc|d)" * 300))
    before = prover.pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads live, such as torch's
        child = os.fork()
    if child == 0:
        code = 1
        try:
            free = prover.pid is None
            compile_.prove(SamplingParams(regex="(?:abc|d)" * 303))
            code = 0 if free and prover.pid not in (None, before) else 2
            prover.kill()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compile_.prove(SamplingParams(regex="(?:abc|d)" * 304))
    assert prover.pid == before


@pytest.mark.parametrize("form", ["rules", "groups", "references", "choices", "objects", "regex"])
def test_the_largest_small_grammars_need_a_quarter_of_a_stack(form):
    """A grammar counts as small only if its compiler cannot overflow a stack, whatever it consists of."""
    code = f"""
        import sys, threading
        sys.path[:0] = {sys.path!r}
        import json
        from bisect import bisect_left
        from hostile_grammars import *
        from llguidance import LLTokenizer, TokenizerWrapper
        from specclient_local.model.grammar_worker import GrammarError, LongestMatchVocabulary, begin_parser
        from specclient_local.request.grammar_bounds import check_grammar
        from specclient.types.request_limits import RequestLimits

        makers = {{
            "rules": ("grammar", lambda n: "\\n".join(
                ["start: r0", *(f"r{{i}}: r{{i + 1}}" for i in range(n)), f'r{{n}}: "x"'])),
            "groups": ("grammar", lambda n: "start: " + "(" * n + '"x"' + ")" * n),
            "references": ("json_schema", lambda n: json.dumps(chained_references(n))),
            "choices": ("json_schema", lambda n: json.dumps(chained_choices(n))),
            "objects": ("json_schema", lambda n: json.dumps(nested_objects(n))),
            "regex": ("regex", lambda n: "(" * n + "x" + ")" * n),
        }}
        kind, make = makers[{form!r}]
        limits = RequestLimits(grammar_nesting=10**6, grammar_chain=10**6)
        sizes = range(1, 400)
        n = sizes[bisect_left(sizes, True, key=lambda n: not check_grammar(kind, make(n), limits).small) - 1]
        vocabulary = LongestMatchVocabulary([*(bytes([i]) for i in range(256)), b""], [])
        tokenizer = LLTokenizer(TokenizerWrapper(vocabulary))

        def compile_it():
            try:
                parser = begin_parser(tokenizer, kind, make(n))
                if not parser.is_error():
                    parser.compute_bitmask()
                print(n, "done", parser.get_error()[:80])
            except GrammarError as error:
                print(n, "done", error)

        threading.stack_size(2 * 2**20)
        thread = threading.Thread(target=compile_it)
        thread.start()
        thread.join()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert "done" in done.stdout, (done.returncode, done.stderr[-500:])
