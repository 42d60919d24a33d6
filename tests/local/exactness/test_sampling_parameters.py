"""Logits processors under speculation: the walk's exact distribution, sampled tokens and greedy tokens."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import defaultdict

import jsonschema
import numpy as np
import pytest
import torch
from p_values import chi_square_p
from specclient_local.decoding import verify as walk
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.logits_processors import LogitPenalties, RequestLogitsProcessor, TokenMasks
from specclient_local.model.sampling import distributions
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from specclient_local.request.token_tree import ROOT, TokenTree, without_token
from tiny_models import enumerate_outcomes, letter_tokenizer, load, write_checkpoint

VOCAB, END, HORIZON = 4, 3, 3
GIVEN = [2, 0, 2]
BAD = ((1, 1), (2, 0, 1), (0, 0, 2))

ASKED = {
    "penalties and biases": {
        "repetition_penalty": 1.8,
        "presence_penalty": 0.7,
        "frequency_penalty": 1.1,
        "logit_bias": {1: 1.5, END: -0.5},
        "top_p": 0.95,
    },
    "masks": {"bad_words": ["stands for BAD"], "min_tokens": 2},
    "a grammar": {"regex": "a[bc]*|bc?a?", "frequency_penalty": 1.5, "min_p": 0.02},
}


class RandomModel:
    """Random float64 logits for every context, created on first use."""

    def __init__(self, seed):
        self.rng, self.known = np.random.default_rng(seed), {}

    def __call__(self, context):
        if context not in self.known:
            self.known[context] = torch.from_numpy(self.rng.normal(0.3, 1.2, VOCAB))
        return self.known[context]


@pytest.fixture(scope="module")
def grammars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    letter_tokenizer(VOCAB).save(str(folder / "tokenizer.json"))
    return GrammarCompiler(Tokenizer(folder), VOCAB, [END])


def reference(logits, params, answer):
    """Return the distribution of the next token, computed from the definition of each parameter."""
    shaped = []
    for token, given in enumerate(logits.tolist()):
        logit, count = given + params.logit_bias.get(token, 0.0), answer.count(token)
        if token in (*GIVEN, *answer):
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        logit -= params.frequency_penalty * count + (params.presence_penalty if count else 0.0)
        before = (*GIVEN, *answer, token)
        bad = params.bad_words and any(before[-len(word) :] == word for word in BAD)
        early = token == END and len(answer) < params.min_tokens
        shaped.append(-math.inf if bad or early or not _in_language(params.regex, answer, token) else logit)
    (distribution,) = distributions(torch.tensor([shaped], dtype=torch.float64), params)
    return distribution


def _in_language(regex, answer, token):
    if regex is None:
        return True
    text = "".join("abc"[t] for t in answer)
    if token == END:
        return re.fullmatch(regex, text) is not None
    begun = text + "abc"[token]
    ends = ("".join(t) for n in range(5) for t in itertools.product("abc", repeat=n))
    return any(re.fullmatch(regex, begun + end) for end in ends)


def is_finished(params, answer):
    if len(answer) == HORIZON or answer[-1:] == (END,):
        return True
    if params.regex is None:
        return False
    return not any(_in_language(params.regex, answer, token) for token in range(END))


def exact_distribution(model, params):
    """Return the distribution of whole answers by plain decoding."""
    distribution, open_ones = {}, {(): 1.0}
    while open_ones:
        answer, weight = open_ones.popitem()
        if is_finished(params, answer):
            distribution[answer] = weight
            continue
        for token, p in enumerate(reference(model(answer), params, answer)):
            if p > 0.0:
                open_ones[(*answer, token)] = weight * p
    return distribution


class Rounds:
    """The engine's rounds over a random model, with its logits processors, sampling and verification walk.

    The rows of a tree depend only on the answer so far and the tree, so they are cached.
    """

    def __init__(self, model, draft, params, rules):
        self.model, self.draft, self.params, self.rules, self.known = model, draft, params, rules, {}

    def rows(self, model, answer, paths):
        key = (model is self.model, answer, tuple(map(tuple, paths)))
        if key not in self.known:
            rules = self.rules()
            for i, token in enumerate(answer):
                rules.process(torch.stack([model(answer[:i])] * 2), [[], [token]])
                rules.take(token)
            logits = torch.stack([model((*answer, *path)) for path in paths])
            self.known[key] = distributions_below(rules.process(logits, paths), self.params)
        return self.known[key]

    def answer(self, choose, propose):
        answer = ()
        while not is_finished(self.params, answer):
            tree = propose(self, choose, answer, HORIZON - len(answer) - 1)
            verdict = walk.verify(tree, self.rows(self.model, answer, tree.paths()), choose)
            for token in (*(tree.tokens[node] for node in verdict.path), verdict.token):
                if not is_finished(self.params, answer):
                    answer = (*answer, token)
        return answer


def distributions_below(logits, params):
    from specclient_local.model.sampling import all_distributions

    return all_distributions([logits], [params], guessed=True)[0]


def drawn_chain(rounds, choose, answer, depth):
    tree = TokenTree()
    while len(tree) < depth:
        (q,) = rounds.rows(rounds.draft, answer, [tree.tokens])
        if isinstance(q, int) or END in tree.tokens:
            break
        tree.add(len(tree) - 1, choose.draw(q), q)
    return tree


def siblings(rounds, choose, answer, depth):
    """Return two siblings drawn without replacement, each with a picked child."""
    tree = TokenTree()
    if depth:
        (q,) = rounds.rows(rounds.draft, answer, [[]])
        first = choose.draw(q)
        rest = without_token(q, first)
        tokens = [first] if rest is None else [first, choose.draw(rest)]
        for node in tree.branch(ROOT, tokens, q) if depth > 1 else ():
            tree.add(node, tree.tokens[node])
    return tree


def picked_tree(rounds, choose, answer, depth):
    """Return a tree of picked tokens: all at the root, allowed or not, and children of the first two."""
    tree = TokenTree()
    for token in range(VOCAB) if depth else ():
        node = tree.add(ROOT, token)
        for child in (token, 1) if depth > 1 and token < 2 else ():
            tree.add(node, child)
    return tree


def worst_error(params, propose, rules, seed):
    model = RandomModel(seed)
    rounds = Rounds(model, RandomModel(seed + 100), params, rules)
    distribution = defaultdict(float)
    for weight, answer in enumerate_outcomes(lambda choose: rounds.answer(choose, propose)):
        distribution[answer] += weight
    wanted = exact_distribution(model, params)
    assert abs(sum(wanted.values()) - 1.0) < 1e-12
    return max(
        abs(distribution[answer] - wanted.get(answer, 0.0)) for answer in distribution.keys() | wanted.keys()
    )


def processor_builder(params, grammars):
    """Return a function that builds the logits processor of a request with the prompt ``GIVEN``."""

    def build():
        masks = TokenMasks([END], params.min_tokens, BAD if params.bad_words else (), GIVEN)
        return RequestLogitsProcessor(LogitPenalties(params, GIVEN), masks, grammars.grammar(params, [END]))

    return build


@pytest.mark.parametrize("propose", [drawn_chain, siblings, picked_tree], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ASKED)
def test_the_walk_with_logits_processors_yields_the_targets_distribution(name, propose, grammars):
    for seed in range(3):
        params = SamplingParams(temperature=0.9, **ASKED[name])
        assert worst_error(params, propose, processor_builder(params, grammars), seed) < 1e-12


@pytest.mark.parametrize("mutant", ["the path is ignored", "nothing is taken", "every guess is kept"])
@pytest.mark.parametrize("name", ASKED)
def test_the_enumeration_detects_wrong_implementations(name, mutant, grammars, monkeypatch):
    original = RequestLogitsProcessor.process
    if mutant == "the path is ignored":
        monkeypatch.setattr(
            RequestLogitsProcessor,
            "process",
            lambda self, rows, paths: original(self, rows, [()] * len(rows)),
        )
    elif mutant == "nothing is taken":
        monkeypatch.setattr(RequestLogitsProcessor, "take", lambda self, token: None)
    else:
        monkeypatch.setattr(walk, "acceptance_probability", lambda p, q, token: 1.0)
    params = SamplingParams(temperature=0.9, **ASKED[name])
    assert worst_error(params, drawn_chain, processor_builder(params, grammars), 0) > 1e-3


LETTERS = 8
PROMPT = [3, 1, 4, 1, 5]
SAMPLES = 320


@pytest.fixture(scope="module")
def letter_pair(tmp_path_factory):
    """Write a target and a draft over eight letters, of which about half the drafted tokens are accepted."""
    shape = {
        "vocab_size": LETTERS,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "eos_token_id": None,
        "bos_token_id": None,
        "tokenizer": letter_tokenizer(LETTERS),
    }
    folder = tmp_path_factory.mktemp("letters")
    return (
        write_checkpoint(folder / "target", seed=5, spread=0.25, **shape),
        write_checkpoint(folder / "draft", seed=6, spread=0.25, num_hidden_layers=1, **shape),
    )


RUNNING = {
    "penalties": {
        "repetition_penalty": 1.6,
        "presence_penalty": 1.5,
        "frequency_penalty": 0.5,
        "logit_bias": {2: 1.0},
        "top_p": 0.9,
    },
    "grammar": {"regex": "([a-d][e-h]|[ef][a-c]|h[a-h])[a-h]", "presence_penalty": 1.0, "top_p": 0.9},
}
SECOND = {**dict.fromkeys("abcd", "efgh"), **dict.fromkeys("ef", "abc"), "h": "abcdefgh", "g": ""}


def target_distribution(folder, requested):
    """Return the target's exact distribution of two tokens, [V, V], computed with transformers' classes."""
    from transformers import (
        AutoModelForCausalLM,
        RepetitionPenaltyLogitsProcessor,
        SequenceBiasLogitsProcessor,
        TopPLogitsWarper,
    )

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    top_p = TopPLogitsWarper(requested["top_p"])
    biases = {(token,): bias for token, bias in requested.get("logit_bias", {}).items()} or {(0,): 0.0}
    penalty = RepetitionPenaltyLogitsProcessor(requested.get("repetition_penalty", 1.0))

    def distribution(answer):
        ids = torch.tensor([[*PROMPT, *answer]])
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[:, -1].double()
        logits = penalty(ids, SequenceBiasLogitsProcessor(biases)(ids, logits))
        for token in answer:
            logits[0, token] -= requested.get("presence_penalty", 0.0) + requested.get(
                "frequency_penalty", 0.0
            )
        if "regex" in requested:
            letters = "".join(SECOND[chr(97 + t)] for t in answer) if answer else "abcdefh"
            logits[0, [t for t in range(LETTERS) if chr(97 + t) not in letters]] = -torch.inf
        return torch.softmax(top_p(ids, logits), -1)[0]

    first = distribution([])
    rows = [
        distribution([t]) if first[t] > 0 else torch.zeros(LETTERS, dtype=torch.float64)
        for t in range(LETTERS)
    ]
    return (first[:, None] * torch.stack(rows)).numpy()


def sample(pair, requested, samples=SAMPLES):
    """Sample two-token continuations with the engine, one per seed; return counts and number of failures."""
    counts, kept, ended = np.zeros((LETTERS, LETTERS)), 0, {seed: [] for seed in range(samples)}
    with load(*pair, slots=8) as engine:
        for seed, events in ended.items():
            engine.add(
                PROMPT, events.append, max_tokens=3, draft_length=2, temperature=1.0, seed=seed, **requested
            )
        while engine.step():
            pass
    answers = [events[-1].generation for events in ended.values() if not isinstance(events[-1], Exception)]
    for answer in answers:
        first, second, *_ = answer.token_ids
        counts[first, second] += 1
        kept += answer.speculation.accepted
    assert kept > samples / 4
    return counts, samples - len(answers)


LONG = pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])


@pytest.mark.parametrize("samples", [SAMPLES, LONG])
@pytest.mark.parametrize("name", RUNNING)
def test_sampled_continuations_follow_the_processed_distribution(letter_pair, name, samples, record_property):
    counts, failed = sample(letter_pair, RUNNING[name], samples)
    assert not failed
    p = chi_square_p(counts, target_distribution(letter_pair[0], RUNNING[name]))
    record_property("p_value", p)
    print(f"chi-square with {name} and top-p: p = {p:.3f} over {samples} continuations")
    assert p > 0.001


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("penalties", "the path is ignored"),
        ("grammar", "the path is ignored"),
        ("penalties", "accept always"),
    ],
)
def test_the_chi_square_test_detects_wrong_implementations(
    letter_pair, name, mutant, monkeypatch, record_property
):
    original = RequestLogitsProcessor.process
    if mutant == "the path is ignored":
        monkeypatch.setattr(
            RequestLogitsProcessor,
            "process",
            lambda self, rows, paths: original(self, rows, [()] * len(rows)),
        )
    else:
        monkeypatch.setattr(walk, "acceptance_probability", lambda p, q, token: 1.0)
        monkeypatch.setattr(walk, "prefix_acceptance", lambda chance, remaining: 1.0)
    counts, _ = sample(letter_pair, RUNNING[name])
    p = chi_square_p(counts, target_distribution(letter_pair[0], RUNNING[name]))
    record_property("p_value", p)
    print(f"chi-square with a rule that is wrong ({name}, {mutant}): p = {p:.1e}")
    assert p < 1e-6


@pytest.fixture(scope="module")
def byte_engine(tmp_path_factory):
    """Load a random target with repetitive answers, and a draft with the same weights."""
    folder = tmp_path_factory.mktemp("bytes")
    target = write_checkpoint(folder / "target", seed=1, eos_token_id=[1, 7])
    draft = write_checkpoint(folder / "draft", seed=1, eos_token_id=[1, 7])
    with load(target, draft) as engine:
        yield engine, target


GREEDY = {
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    "logit_bias": {"logit_bias": {7: 6.0, 40: -100.0}},
    "min_tokens": {"logit_bias": {7: 100.0}, "min_tokens": 9},
    "bad_words": {"bad_words": ["wse", "J", "fibonacci"]},
    "json_schema": {"json_schema": {"type": "object", "maxProperties": 3}},
    "regex": {"regex": r"(def|return) [a-z]{2,9}\((n|x){1,3}\):"},
    "grammar": {"grammar": 'start: word (" " word)*\nword: "ab" | /[0-9]{1,3}/ | <|bos|>'},
    "all": {
        "regex": r"[a-m ]{1,14}",
        "repetition_penalty": 1.2,
        "bad_words": ["a", "lm"],
        "min_tokens": 5,
        "logit_bias": {70: 2.0},
    },
}


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_answers_with_logits_processors_equal_plain_decoding(byte_engine, name):
    engine, _ = byte_engine
    requested = {"max_tokens": 20, **GREEDY[name]}
    plain = engine.generate("def f(n):", method="plain", **requested)
    assert plain.token_ids != engine.generate("def f(n):", method="plain", max_tokens=20).token_ids
    expected = [*plain.token_ids[:4], 3, *plain.token_ids[4:]]
    for drafts in (
        *({"method": "draft", "draft_length": length} for length in range(1, 9)),
        {"method": "draft", "draft_tree": [3, 2, 1], "draft_length": 3},
        {"method": "draft", "draft_tree": "grow", "draft_length": 4},
        {"method": "ngram", "draft_length": 5},
        {"method": "prediction", "prediction": expected},
    ):
        drafted = engine.generate("def f(n):", **drafts, **requested)
        assert drafted.token_ids == plain.token_ids
        assert (drafted.text, drafted.finish_reason) == (plain.text, plain.finish_reason)
        assert drafted.speculation.accepted or drafts["method"] != "draft"


def test_plain_answers_with_logits_processors_equal_those_of_transformers(byte_engine):
    from transformers import AutoModelForCausalLM

    engine, folder = byte_engine
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = engine.tokenizer.encode("def f(n):")
    seven = {"logit_bias": {7: 100.0}}
    bad = [engine.tokenizer.encode(text, begins=False) for text in ("e", " e", "turn", " turn")]
    for own, theirs in (
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"bad_words": ["e", "turn"]}, {"bad_words_ids": bad}),
        ({"min_tokens": 11, **seven}, {"min_new_tokens": 11, "sequence_bias": [[[7], 100.0]]}),
        ({"min_tokens": 5, **seven}, {"min_new_tokens": 5, "sequence_bias": [[[7], 100.0]]}),
    ):
        answer = engine.generate(prompt, max_tokens=24, **own)
        with torch.inference_mode():
            wanted = model.generate(
                torch.tensor([prompt]), do_sample=False, max_new_tokens=24, pad_token_id=1, **theirs
            )
        assert answer.token_ids == wanted[0, len(prompt) :].tolist()


SCHEMAS = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["a", "b", None]},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    {"anyOf": [{"type": "number", "maximum": 100000}, {"type": "string", "pattern": "^[a-f]{2,5}$"}]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["object", "array", "either"])
def test_answers_with_a_json_schema_validate_against_it(byte_engine, schema):
    engine, _ = byte_engine
    whole = 0
    for seed in range(10):
        text = json.dumps(schema) if seed % 2 else schema
        answer = engine.generate(
            "def f(n):", json_schema=text, max_tokens=110, temperature=0.5 + seed % 3, seed=seed
        )
        if answer.finish_reason == "stop":
            jsonschema.validate(json.loads(answer.text), schema)
            whole += 1
    assert whole >= 8
