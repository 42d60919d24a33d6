"""The options of ``specclient local generate`` are derived from the engine's parameters."""

import click
import pytest
from specclient_cli.local import generate
from specclient_local.request import params
from specclient_local.request.params import PARAMETER_RULES, ParameterRule
from specclient_local.request.validation import number, optional

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty")


def options_of(command):
    return {option.name: option for option in command.params}


def test_every_sampling_parameter_has_an_option():
    own = options_of(generate.command)
    assert set(SAMPLING) < set(own)
    assert {name for name, rule in PARAMETER_RULES.items() if rule.option is not None} < set(own)
    assert own["top_k"].type.min == 0
    assert (own["presence_penalty"].type.min, own["presence_penalty"].type.max) == (-2.0, 2.0)


def test_a_new_parameter_gets_an_option_by_its_rule(monkeypatch):
    rule = ParameterRule("a number above 0, or None", optional(number(0.0, open_low=True)), "Cut the tail.")
    monkeypatch.setattr(generate, "PARAMETER_RULES", {**PARAMETER_RULES, "tail_cut": rule})
    own = options_of(click.command(generate.parameter_options(lambda: None)))
    assert own["tail_cut"].opts == ["--tail-cut"]
    assert own["tail_cut"].help == "Cut the tail."
    with pytest.raises(click.BadParameter):
        own["tail_cut"].type.convert("0", None, None)


def test_the_keyword_arguments_equal_the_fields_of_sampling_params():
    assert set(params.Parameters.__annotations__) == set(params.SamplingParams.__dataclass_fields__)
