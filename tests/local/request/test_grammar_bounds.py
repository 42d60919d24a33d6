"""Sizes of grammars: what is counted, which grammars are refused, and that counting takes linear time."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hostile_grammars import (
    chained_choices,
    chained_gbnf,
    chained_references,
    chained_rules,
    nested_objects,
)
from specclient_local.request.grammar_bounds import check_grammar, check_object
from specclient_local.request.grammar_size import longest_chain

from specclient.errors import BadRequestError, ConfigurationError
from specclient.types.request_limits import RequestLimits

LIMITS = RequestLimits()
LARGE = 2**40
NONE = RequestLimits(
    grammar_bytes=LARGE,
    grammar_rules=LARGE,
    grammar_nesting=LARGE,
    grammar_chain=LARGE,
    grammar_alternatives=LARGE,
    grammar_repetitions=2**70,
)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 80}, "tags": {"enum": ["a", "b"]}},
    "required": ["name"],
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"properties": {"left": {"$ref": "#/$defs/node"}, "leaf": {"$ref": "#/$defs/leaf"}}},
              "leaf": {"type": "integer"}},
}  # fmt: skip


def measured(kind, text, limits=NONE):
    return check_grammar(kind, text if isinstance(text, str) else json.dumps(text), limits)


@pytest.mark.parametrize(
    ("kind", "text", "field", "value"),
    [
        ("grammar", chained_rules(50), "chain", 52),
        ("grammar", chained_rules(50), "rules", 52),
        ("grammar", chained_gbnf(50), "chain", 52),
        ("grammar", "start: a\na: b\nb: a | c\nc: X\nX: /x/", "chain", 5),
        ("grammar", 'start: a | b | c\na: "x"\nb: "y"\nc: "z"', "chain", 2),
        ("grammar", 'start: "a" | "b" | ("c" | "d")', "alternatives", 3),
        ("grammar", 'start: "(((" | /[(]|b|c|d/', "alternatives", 4),
        ("grammar", 'start: (("a") "b")', "nesting", 2),
        ("grammar", 'start: ("a"{2,30} "b"){4}', "repetitions", 120),
        ("grammar", 'start: "a"~3..50', "repetitions", 50),
        ("grammar", "start: // a comment: b c\n  X\nX: /x/", "rules", 2),
        ("grammar", 'start: x\nx[lazy]: /a{7}/\n', "repetitions", 7),
        ("grammar", f"start: x\nx: %json {json.dumps(chained_references(40))}", "chain", 43),
        ("grammar", f"start: %json {json.dumps({'maxItems': 99})} x\nx: Y\nY: /y/", "rules", 3),
        ("regex", "(a{1000}){1000}", "repetitions", 10**6),
        ("regex", "a{1000000}", "repetitions", 10**6),
        ("regex", "a{2}b{3}", "repetitions", 3),
        ("regex", "[{9}]{2}\\{99\\}", "repetitions", 2),
        ("regex", "(a|b|(c|d))", "alternatives", 3),
        ("regex", "((((a))))", "nesting", 4),
        ("regex", "a{" + "9" * 5000 + "}", "repetitions", 10**18),
        ("json_schema", chained_references(30), "chain", 31),
        ("json_schema", chained_choices(30), "chain", 31),
        ("json_schema", TREE, "chain", 2),
        ("json_schema", PERSON, "alternatives", 2),
        ("json_schema", PERSON, "repetitions", 80),
        ("json_schema", PERSON, "nesting", 4),
        ("json_schema", nested_objects(20), "nesting", 41),
        ("json_schema", {"properties": {"maxLength": {"const": {"maxLength": 10**9}}}}, "repetitions", 0),
        ("json_schema", {"items": {"pattern": "(a{50}){3}"}}, "repetitions", 150),
        ("json_schema", {"patternProperties": {"a{5}": {}, "b": {}}}, "patterns", 2),
        ("json_schema", {"maxItems": 1e400}, "repetitions", 2**63),
        ("json_schema", {"$ref": "#/properties/a~1b", "properties": {"a/b": {"$ref": "#"}}}, "chain", 2),
        ("json_schema", {"anyOf": [{"$ref": "#x"}], "$defs": {"x": {"$anchor": "x"}}}, "rules", 1),
        ("json_schema", {"$ref": "https://other/host"}, "rules", 0),
    ],
    ids=str,
)  # fmt: skip
def test_sizes(kind, text, field, value):
    text = text if isinstance(text, str) else json.dumps(text).replace("Infinity", "1e999")
    assert getattr(measured(kind, text), field) == value


@pytest.mark.parametrize(
    ("kind", "text", "limit"),
    [
        ("grammar", chained_rules(3000), "rules"),
        ("grammar", chained_rules(300), "chain"),
        ("grammar", f"start: {'(' * 65}x{')' * 65}", "nesting"),
        ("grammar", f"start: {' | '.join(['x'] * 2001)}", "alternatives"),
        ("grammar", "start: x" + "\n  | y" * 2000, "alternatives"),
        ("grammar", f"start: /{'|'.join(['ab'] * 2001)}/", "alternatives"),
        ("grammar", f"root ::= {' | '.join(['x'] * 2001)}", "alternatives"),
        ("grammar", f"start: %json {json.dumps({'enum': list(range(2001))})}", "alternatives"),
        ("regex", "|".join(["ab"] * 2001), "alternatives"),
        ("json_schema", {"enum": list(range(2001))}, "alternatives"),
        (
            "json_schema",
            {"properties": {"x": {"oneOf": [{"const": i} for i in range(2001)]}}},
            "alternatives",
        ),
        ("grammar", "start: /a{100001}/", "repetitions"),
        ("grammar", f"start: x // {'x' * 2**17}", "bytes"),
        ("regex", "a{1000000}", "repetitions"),
        ("json_schema", chained_references(998), "chain"),
        ("json_schema", chained_references(1000, padding=5), "rules"),
        ("json_schema", chained_choices(4000), "bytes"),
        ("json_schema", {"anyOf": [{"const": i} for i in range(2001)]}, "alternatives"),
        ("json_schema", nested_objects(32), "nesting"),
    ],
    ids=str,
)
def test_a_grammar_beyond_a_limit_is_refused_with_the_limit(kind, text, limit):
    text = text if isinstance(text, str) else json.dumps(text)
    with pytest.raises(BadRequestError, match=rf"raise grammar_{limit} in \[server.requests\]") as refused:
        measured(kind, text, LIMITS)
    assert (refused.value.param, refused.value.code) == (kind, "grammar_too_large")
    assert f"at most {getattr(LIMITS, f'grammar_{limit}')}" in str(refused.value)
    assert len(str(refused.value)) < 300, "the error does not repeat the grammar"


def test_a_json_list_of_grammars_is_refused():
    with pytest.raises(BadRequestError, match="grammar is JSON; allowed is a grammar in Lark or GBNF"):
        measured("grammar", ' {"grammars": [{"lark_grammar": "start: x"}]}', LIMITS)


def test_an_object_is_bounded_before_it_is_written():
    loop: dict[str, object] = {}
    loop["a"] = loop
    twice: object = 1
    for _ in range(40):
        twice = [twice, twice]
    for value, limit in ((loop, "nesting"), (twice, "bytes"), ({"a": [0] * 2**18}, "bytes")):
        with pytest.raises(BadRequestError, match=f"raise grammar_{limit}"):
            check_object("json_schema", value, LIMITS)
    check_object("json_schema", PERSON, LIMITS)


def test_ordinary_grammars_are_small():
    for kind, text in (
        ("json_schema", PERSON),
        ("json_schema", TREE),
        ("regex", r"[a-z]{1,30}(\.[0-9]+)*"),
        ("grammar", 'start: "yes" | "no"'),
        ("grammar", chained_rules(20)),
    ):
        assert measured(kind, text).small
    for kind, text in (
        ("grammar", chained_rules(256)),
        ("regex", "a{1001}"),
        ("regex", "a" * 8193),
        ("grammar", "start: X\nX: ~(~(~(/x/)))"),
        ("json_schema", chained_references(90)),
        ("json_schema", {"patternProperties": {f"{i}": {} for i in range(9)}}),
    ):
        assert not measured(kind, text).small


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit",
    ['"', '\\"', "{ ", "{", "_", "!_", "<", "<a", "%json", "%json {", "~ ", "~1 ", "(", "[", "[[", "/", "//a",
     "\\p{", "a\n", "a:\n", "a: a\n", "a ::= a\n", "|", "\n", " ", "{1", "{1,", "{,", "1", "&", "::="],
)  # fmt: skip
def test_counting_takes_linear_time(unit):
    """Anything quadratic takes minutes at this size."""
    text = (unit * LIMITS.grammar_bytes)[: LIMITS.grammar_bytes]
    for kind in ("grammar", "regex"):
        measured(kind, f"a {text}")
        measured(kind, f"a ::= {text}")
    measured("json_schema", json.dumps({"pattern": text}))
    measured("json_schema", json.dumps({"a" * 2**16: [[] for _ in range(2**14)], "$ref": "#/" + text}))


def longest_path(links):
    """Return the number of nodes on the longest path that visits none twice, by trying all orders."""
    return max(
        (
            size
            for size in range(len(links) + 1)
            for path in itertools.permutations(links, size)
            if all(b in links[a] for a, b in itertools.pairwise(path))
        ),
        default=0,
    )


def test_the_longest_chain_is_never_counted_too_short():
    rng = random.Random(0)
    for _ in range(60):
        nodes = range(rng.randint(0, 6))
        links = {node: {other for other in nodes if rng.random() < 0.3} for node in nodes}
        assert longest_chain(links) >= longest_path(links)
        without_circles = {
            node: {other for other in others if other > node} for node, others in links.items()
        }
        assert longest_chain(without_circles) == longest_path(without_circles)
    assert longest_chain({i: {i + 1} for i in range(100_000)}) == 100_000, "no recursion"


@pytest.mark.parametrize("value", [0, -1, True, "5", 1.5, None])
def test_limits_are_numbers_above_zero(value):
    with pytest.raises(ConfigurationError, match=r"the request limit choices is .*; it must be an integer"):
        RequestLimits(choices=value)
