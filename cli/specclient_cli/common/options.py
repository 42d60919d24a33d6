"""Options of calls on the command line: model, sampling, policy and tags, with their checks."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from specclient.config import Settings
from specclient.types.criterion import CRITERIA, PromptTask
from specclient.types.policy import PercentileScope, Policy
from specclient_cli.common.parameter_types import (
    AUTO,
    DollarAmount,
    LimitPair,
    MinimizeChoice,
    ModelName,
    NonNegativeFloat,
    PolicyName,
    TagPair,
)

F = TypeVar("F", bound=Callable[..., Any])


def model_option(function: F) -> F:
    """Add ``-m/--model``."""
    return click.option(
        "-m",
        "--model",
        type=ModelName(),
        help="PROVIDER/MODEL, the bare name of a model of the default provider, or 'auto' to let a policy "
        "choose. Default: SPECCLIENT_MODEL, else default_model of the configuration, else local/demo.",
    )(function)


def sampling_options(function: F) -> F:
    """Add the sampling options."""
    for option in reversed(
        [
            click.option(
                "--max-tokens",
                type=click.IntRange(min=1),
                help="Maximum tokens to generate. Default: 128 for text; the server's default for chats.",
            ),
            click.option(
                "--temperature",
                type=NonNegativeFloat(),
                help="0 always takes the most likely token. Default: 0 for local models, else the server's "
                "default.",
            ),
            click.option(
                "--top-p",
                type=NonNegativeFloat(1, above_zero=True),
                help="Sample from the most likely tokens that together have this probability.",
            ),
            click.option("--seed", type=int, help="Seed that makes a sampled answer repeatable."),
            click.option("--stop", multiple=True, help="End the answer before this text; may be repeated."),
            click.option(
                "--draft-length",
                type=click.IntRange(min=0),
                help="Drafted tokens per verification, for local models only; 0 disables drafting. "
                "Default: adapted to the measured acceptance rate.",
            ),
        ]
    ):
        function = option(function)
    return function


#: The limits that have an option of their own: the option's parameter, and the field of the bound.
_LIMIT_FIELDS = {
    bound.flag.removeprefix("--").replace("-", "_"): field
    for field, (_, bound) in CRITERIA.bounds.items()
    if bound.flag is not None
}
#: The other parameters of :func:`policy_options` that are fields of a policy.
_FIELDS = (
    "minimize",
    "percentile",
    "percentile_per",
    "allow",
    "deny",
    "local_only",
    "task",
    "hedge",
    "explore",
)
#: All parameters of :func:`policy_options`, as commands receive them.
POLICY = ("policy_name", *_FIELDS, *_LIMIT_FIELDS, "limits", "no_fallbacks")


def _limit_options() -> list[Callable[[F], F]]:
    """Return an option for each bound of a criterion that has a flag, and ``--limit`` for the others."""
    own = [
        click.option(
            bound.flag,
            type=DollarAmount()
            if criterion.unit == "USD"
            else NonNegativeFloat(
                None if math.isinf(bound.greatest) else bound.greatest, above_zero=bound.positive
            ),
            help=bound.help,
        )
        for criterion, bound in CRITERIA.bounds.values()
        if bound.flag is not None
    ]
    other = click.option(
        "--limit",
        "limits",
        type=LimitPair(),
        multiple=True,
        metavar="FIELD=VALUE",
        help="Rule out routes beyond a limit on any criterion, such as max_cost_usd=0.01; may be repeated.",
    )
    return [*own, other]


def policy_options(function: F) -> F:
    """Add the options that make up a policy."""
    for option in reversed(
        [
            click.option(
                "--policy",
                "policy_name",
                type=PolicyName(),
                help="Use this [policies.NAME] of the configuration; the other policy options override its "
                "values.",
            ),
            click.option(
                "--minimize",
                type=MinimizeChoice(),
                help="Route to the least predicted cost or latency; or weigh both: cost=1,latency=0.002 "
                "makes a second worth $0.002.",
            ),
            *_limit_options(),
            click.option(
                "--percentile",
                type=click.FloatRange(0, 1, min_open=True, max_open=True),
                help="Share of calls that must keep the latency limits. Default: 0.95.",
            ),
            click.option(
                "--percentile-per",
                type=click.Choice(get_args(PercentileScope)),
                help="Keep the percentile over all calls of the policy, or for each task or class of prompt "
                "lengths by itself. Default: policy.",
            ),
            click.option(
                "--allow",
                multiple=True,
                metavar="ROUTE",
                help="Route only to this route, or to routes with this prefix (local/); may be repeated.",
            ),
            click.option(
                "--deny",
                multiple=True,
                metavar="ROUTE",
                help="Never route to this route, or to routes with this prefix; may be repeated.",
            ),
            click.option("--local-only", is_flag=True, help="Keep every call on this machine."),
            click.option(
                "--task",
                type=click.Choice([*get_args(PromptTask), "auto"]),
                help="The kind of prompt. Default: classified from the prompt.",
            ),
            click.option("--no-fallbacks", is_flag=True, help="Fail when the chosen route fails."),
            click.option(
                "--hedge",
                type=NonNegativeFloat(1),
                metavar="SHARE",
                help="Call a second route too when the first is unusually slow, for at most this share of "
                "calls.",
            ),
            click.option(
                "--explore",
                type=NonNegativeFloat(1),
                metavar="SHARE",
                help="Send this share of calls to routes of which little is known. Default: 0.05.",
            ),
        ]
    ):
        function = option(function)
    return function


def tag_option(text: str) -> Callable[[F], F]:
    """Add ``--tag NAME=VALUE``, any number of them."""
    return click.option("--tag", "tags", type=TagPair(), multiple=True, metavar="NAME=VALUE", help=text)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def text_of(argument: str) -> str:
    """Return an argument, or the text of stdin if the argument is ``-``.

    Raises:
        click.UsageError: the bytes are not UTF-8 text.
    """
    try:
        text = sys.stdin.read() if argument == "-" else argument
        text.encode()  # undecodable bytes of an argument are lone surrogates
    except UnicodeError:
        where = "stdin" if argument == "-" else "the prompt"
        raise click.UsageError(f"{where} is not UTF-8 text; convert it, for example with iconv.") from None
    return text


def policy_of(settings: Settings, **given: Any) -> Policy | None:
    """Return the policy that the options make up, None if none is given.

    Args:
        given: the parameters of :func:`policy_options`, by name; see :data:`POLICY`.

    Raises:
        ConfigurationError: an unknown policy name, or values that no policy has.
    """
    words = {name: given.get(name) for name in _FIELDS}
    changes = {
        name: value for name, value in words.items() if not (value is None or value is False or value == ())
    }
    if given.get("no_fallbacks"):
        changes["fallbacks"] = False
    flagged = {
        field: limit for name, field in _LIMIT_FIELDS.items() if (limit := given.get(name)) is not None
    }
    limits = {**flagged, **dict(given.get("limits") or ())}
    policy_name = given.get("policy_name")
    if policy_name is None and not changes and not limits:
        return None
    base = Policy() if policy_name is None else settings.policy_named(policy_name)
    return dataclasses.replace(base, **changes, limits={**base.limits, **limits})


def model_of(settings: Settings, model: str | None, policy: Policy | None) -> str:
    """Return the model of a call: the given one, ``auto`` if there is a policy, or the default.

    Raises:
        click.UsageError: a policy and a model are given.
    """
    if policy is None:
        return model or settings.default_model
    if model not in (None, AUTO):
        raise click.UsageError(f"a policy chooses the model, so -m {model} cannot be given with it.")
    return AUTO
