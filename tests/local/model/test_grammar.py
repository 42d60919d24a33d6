"""Grammars as token masks: against all sentences of small languages, along trees, and with end tokens."""

from __future__ import annotations

import builtins
import itertools
import json
import re

import jsonschema
import numpy as np
import pytest
import torch
from specclient_local.api.openai_request.answer_format import parse_answer_format
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.grammar_vocabulary import GrammarVocabulary
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from tiny_models import byte_tokenizer, letter_tokenizer

from specclient.errors import BadRequestError, ConfigurationError

LETTERS = 6
END = 5
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    letter_tokenizer(LETTERS).save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def allowed(grammar, paths, columns):
    """Return the columns that the grammar allows after each path."""
    rows = torch.zeros(len(paths), columns)
    grammar.apply(rows, paths)
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in rows]


@pytest.mark.parametrize("regex", ["ab?c", "(ab|ba)*c", "a{2,3}", "[ab]*d|c", "a[^a]"])
def test_a_token_is_allowed_if_it_continues_towards_a_sentence(letters, regex):
    """The expected tokens come from all sentences of up to six letters, matched by Python's ``re``."""
    grammars = GrammarCompiler(letters, LETTERS, [END])
    texts = ["".join(t) for n in range(7) for t in itertools.product("abcde", repeat=n)]
    sentences = [text for text in texts if re.fullmatch(regex, text)]
    for text in (text for text in texts if len(text) < 4):
        if not any(sentence.startswith(text) for sentence in sentences):
            continue
        grammar = grammars.grammar(SamplingParams(regex=regex), [END])
        for token in (ord(letter) - 97 for letter in text):
            grammar.take(token)
        continuing = {ord(s[len(text)]) - 97 for s in sentences if s.startswith(text) and s != text}
        ending = {END} if text in sentences else set()
        assert allowed(grammar, [[]], LETTERS) == [continuing | ending]
        assert grammar.ended == (not continuing)


def random_paths(rng, grammar, taken, end):
    """Return paths of random tokens, both allowed and forbidden."""
    paths = [()]
    for _ in range(6):
        path = paths[rng.integers(len(paths))]
        found = grammar._after(path)
        options = [] if found is None else [t for t in found.tokens.nonzero()[0].tolist() if t not in end]
        paths.append((*path, int(rng.choice(options)) if options and rng.random() < 0.8 else 7))
    return paths


@pytest.mark.parametrize("schema", [PERSON, {"type": "object"}, {"enum": ["alpha", "alphabet", 12]}])
def test_masks_along_a_tree_equal_those_of_a_separate_parser_per_path(tokens, schema):
    grammars, requested = GrammarCompiler(tokens, 300, [0, 1]), SamplingParams(json_schema=schema)
    for seed in range(2):
        rng, taken = np.random.default_rng(seed), []
        grammar = grammars.grammar(requested, [0, 1])
        while not grammar.ended and len(taken) < 12:
            paths = random_paths(rng, grammar, taken, (0, 1))
            for path, row in zip(paths, allowed(grammar, paths, 300), strict=True):
                alone, reachable = grammars.grammar(requested, [0, 1]), True
                for token in [*taken, *path]:
                    reachable = reachable and token in allowed(alone, [[]], 300)[0]
                    alone.take(token)
                assert row == (allowed(alone, [[]], 300)[0] if reachable else set(range(300)))
            firsts = [p[0] for p in paths if p and grammar._after(p[:1]) is not None]
            token = int(rng.choice(firsts or [*(allowed(grammar, [[]], 300)[0] - {0, 1})]))
            grammar.take(token)
            taken.append(token)


def test_masks_computed_for_the_draft_are_reused_for_the_target(tokens, monkeypatch):
    from specclient_local.model.grammar import GrammarState

    requested, original = [], GrammarState._ask
    monkeypatch.setattr(GrammarState, "_ask", lambda self: requested.append(1) or original(self))
    grammar = GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(regex="def [a-z]+"), [1])
    chain = tokens.encode("def f")
    for depth in range(len(chain)):
        grammar.apply(torch.zeros(1, 300), [chain[:depth]])
    assert len(requested) == len(chain)
    grammar.apply(torch.zeros(len(chain) + 1, 300), [chain[:depth] for depth in range(len(chain) + 1)])
    assert len(requested) == len(chain) + 1
    for token in chain:
        grammar.take(token)
        assert not grammar.ended
    assert len(requested) == len(chain) + 1


@pytest.mark.parametrize("ends", [[], [END], [1, END]], ids=str)
def test_a_complete_answer_may_end_with_any_end_token_or_without_one(letters, ends):
    grammars = GrammarCompiler(letters, LETTERS, ends)
    grammar = grammars.grammar(SamplingParams(regex="ac?"), ends)
    assert allowed(grammar, [[], [0], [0, 2], [0, END]], LETTERS) == [
        {0},
        {2, *ends},
        {*ends},
        set(range(LETTERS)),
    ]
    grammar.take(0)
    assert not grammar.ended
    other = grammars.grammar(SamplingParams(regex="ac?"), ends)
    other.take(0)
    for token in ends[:1]:
        grammar.take(token)
        assert grammar.ended
    other.take(2)
    assert other.ended


def test_a_special_stop_token_may_end_the_answer(tokens):
    """Special token 0 is a stop token of this request; a stop token that is text must match the grammar."""
    text = tokens.encode("b")
    grammar = GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(regex="a"), [0, 1, *text])
    grammar.take(*tokens.encode("a"))
    assert allowed(grammar, [[]], 300) == [{0, 1}]


def test_logits_may_be_wider_than_the_tokenizer_and_narrower_in_a_draft(letters):
    grammar = GrammarCompiler(letters, LETTERS + 3, []).grammar(SamplingParams(regex="[af]b"), [])
    assert allowed(grammar, [[]], LETTERS + 3) == [{0, 5}]
    assert allowed(grammar, [[]], LETTERS + 9) == [{0, 5}]
    assert allowed(grammar, [[]], 3) == [{0}]
    assert allowed(grammar, [[5]], 1) == [set()]


def test_a_parser_failure_affects_only_its_own_answer(letters):
    """The library panics when it reaches a lazy lexeme that may be empty."""
    lark = 'start: "a" lazy "c" | "b" "d"\nlazy[lazy]: /b*/'
    grammars, requested = GrammarCompiler(letters, LETTERS, [END]), SamplingParams(grammar=lark)
    one, other = grammars.grammar(requested, [END]), grammars.grammar(requested, [END])
    assert allowed(one, [[], [0], [1]], LETTERS) == [{0, 1}, set(), {3}]
    one.take(0)
    assert one.stuck() is not None
    assert allowed(other, [[1]], LETTERS) == [{3}]
    assert allowed(grammars.grammar(requested, [END]), [[]], LETTERS) == [{0, 1}]


def test_a_grammar_that_no_token_can_begin_is_rejected(letters):
    with pytest.raises(BadRequestError, match="regex cannot be used: the model's tokens cannot write"):
        GrammarCompiler(letters, LETTERS, [END]).grammar(SamplingParams(regex="1a"), [END])


def test_a_dead_end_allows_no_token_and_leaves_other_paths_unchanged(letters):
    grammar = GrammarCompiler(letters, LETTERS, [END]).grammar(SamplingParams(regex="a1|bc"), [END])
    assert allowed(grammar, [[0], [], [1]], LETTERS) == [set(), {0, 1}, {2}]
    grammar.take(1)
    assert allowed(grammar, [[]], LETTERS) == [{2}]
    grammar.take(2)
    assert grammar.ended
    later = GrammarCompiler(letters, LETTERS, [END]).grammar(SamplingParams(regex="ba(a1|bc)"), [END])
    later.take(1)
    later.take(0)
    assert allowed(later, [[0], [1]], LETTERS) == [set(), {2}]


def test_a_lark_grammar_may_name_special_tokens(tokens):
    lark = 'start: <|bos|> "x" <|eos|>'
    grammar = GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(grammar=lark), [1])
    for wanted in (0, *tokens.encode("x"), 1):
        assert allowed(grammar, [[]], 300) == [{wanted}]
        grammar.take(wanted)
    assert grammar.ended


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"regex": "(a"}, "regex cannot be used: .*unclosed group"),
        ({"grammar": "start: missing"}, 'grammar cannot be used: .*unknown name: "missing"'),
        ({"grammar": 'start: text "x"\ntext[lazy]: /a*/'}, "grammar cannot be used: panic: .*lowest_match"),
        ({"regex": "[^\\s\\S]"}, "regex cannot be used: "),
        ({"json_schema": {"type": "number", "not": {}}}, r'json_schema cannot be used: .*\["not"\]'),
        ({"json_schema": '{"type":'}, "json_schema is '{\"type\":'; allowed is a JSON schema"),
        ({"json_schema": {"const": {1, 2}}}, "json_schema is .* not JSON serializable"),
        ({"json_schema": {"maximum": float("inf")}}, "json_schema is .* not JSON compliant"),
    ],
)
def test_invalid_grammars_raise_with_the_parameters_name(tokens, requested, message):
    with pytest.raises(BadRequestError, match=f"(?s){message}") as refused:
        GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(**requested), [1])
    assert refused.value.param == next(iter(requested))


def test_without_llguidance_the_error_names_the_package_to_install(tokens, monkeypatch):
    original = builtins.__import__

    def lacking(name, *rest):
        if name.split(".")[0] == "llguidance":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    grammars = GrammarCompiler(tokens, 300, [1])
    assert grammars.grammar(SamplingParams(), [1]) is None
    _, form = parse_answer_format({"guided_grammar": 'root ::= "a"'}, {}, "name")
    for requested in ({"regex": "a"}, form):
        with pytest.raises(ConfigurationError, match=r"pip install 'specclient\[local\]'"):
            grammars.grammar(SamplingParams(**requested), [1])


def test_white_space_in_json_is_bounded(tokens):
    grammar = GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(json_schema={"type": "object"}), [1])
    for token in tokens.encode("{\n" + " " * 40):
        grammar.take(token)
    (space,), (quote,) = tokens.encode(" "), tokens.encode('"')
    after = allowed(grammar, [[]], 300)[0]
    assert quote in after
    assert space not in after


def test_text_is_tokenized_as_by_the_tokenizer_or_by_longest_match(tokens, letters):
    cut = GrammarVocabulary(tokens, 300, [1])
    assert cut(b"def fibonacci") == tokens.encode("def fibonacci")
    assert b"".join(cut.tokens[i] for i in cut("é<|eos|>".encode())) == "é<|eos|>".encode()
    assert not set(cut("é<|eos|>".encode())) & {0, 1}
    assert [cut.tokens[i] for i in cut(b"\xc3")] == [b"\xc3"]
    assert GrammarVocabulary(letters, LETTERS, [])(b"ab1c") == [0, 1]


def test_a_json_schema_grammar_accepts_a_valid_document(tokens):
    schema = {"type": "object", "properties": {"a": {"enum": [1, "x", None]}}, "required": ["a"]}
    grammar = GrammarCompiler(tokens, 300, [1]).grammar(SamplingParams(json_schema=json.dumps(schema)), [1])
    written = tokens.encode('{"a": "x"}')
    for token in written:
        assert token in allowed(grammar, [[]], 300)[0]
        grammar.take(token)
    jsonschema.validate(json.loads(tokens.decode(written)), schema)
    assert 1 in allowed(grammar, [[]], 300)[0]
