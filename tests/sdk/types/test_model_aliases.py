"""Aliases of models: exact names, patterns, chains, and tables that cannot be resolved."""

from __future__ import annotations

import pytest

from specclient.errors import ConfigurationError
from specclient.types.model_aliases import ModelAliases

TABLE = {
    "gpt-4*": "openai/gpt-4o-mini",
    "gpt-4o": "local/demo",
    "gpt-4.1*": "local/demo-target",
    "fast": "gpt-4o",
    "any": "auto",
    "*": "mine/m-large",
}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gpt-4o", "local/demo"),  # the exact name, though a pattern matches as well
        ("gpt-4-turbo", "openai/gpt-4o-mini"),
        ("gpt-4.1-nano", "local/demo-target"),  # the longer pattern
        ("fast", "local/demo"),  # the target is an alias
        ("any", "auto"),
        ("anthropic/claude", "mine/m-large"),
        ("", ""),  # a request without a model
    ],
)
def test_a_name_stands_for_the_most_specific_target(name, target):
    aliases = ModelAliases(TABLE)
    assert aliases.target(name) == aliases.target(name) == target


def test_a_name_that_is_no_alias_stays_and_patterns_do_not_apply_to_targets():
    aliases = ModelAliases({"gpt-*": "gpt-5"})
    assert (aliases.target("o3"), aliases.target("gpt-5"), aliases.target("gpt-4")) == (
        "o3",
        "gpt-5",
        "gpt-5",
    )
    assert aliases.exact_target("gpt-4") == "gpt-4"
    assert aliases.names == ()


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"a": "b", "b": "c", "c": "a"}, "alias 'a' leads back to itself: 'a' -> 'b' -> 'c' -> 'a'"),
        ({"demo": "demo"}, "alias 'demo' leads back to itself"),
        ({"auto": "local/demo"}, "alias 'auto' for 'local/demo' is not allowed"),
        ({"": "local/demo"}, "alias '' for"),
        ({"x": ""}, "alias 'x' is for ''"),
        ({"x": "openai/*"}, "it must be for one model"),
    ],
)
def test_a_table_that_cannot_be_resolved_is_refused_in_one_line_that_names_the_alias(table, error):
    with pytest.raises(ConfigurationError) as raised:
        ModelAliases(table)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_many_names_from_requests_do_not_grow_its_memory():
    aliases = ModelAliases(TABLE)
    for number in range(3000):
        assert aliases.target(f"gpt-4-{number}") == "openai/gpt-4o-mini"
    assert len(aliases._known) <= 1024
