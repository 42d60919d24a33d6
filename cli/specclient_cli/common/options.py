"""Turn command-line words into what a call takes: model, sampling, policy and tags, each checked."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from specclient.config import Settings
from specclient.errors import ConfigurationError
from specclient.providers import PRESETS
from specclient.types.route import Minimize, Policy, PromptTask
from specclient_cli.common.state import known_settings

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # generic in recent versions only

AUTO = "auto"

F = TypeVar("F", bound=Callable[..., Any])


class NonNegativeFloat(click.FloatRange):
    """A number of 0 or more; ``nan`` and ``inf`` are none."""

    name = "number"

    def __init__(self, maximum: float | None = None, *, above_zero: bool = False) -> None:
        super().__init__(min=0, max=maximum, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        low = "above 0" if self.min_open else "0 or more"
        return low if self.max is None else f"{low}, at most {self.max:g}"


class DollarAmount(NonNegativeFloat):
    """An amount of money, kept exactly as it was written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        super().convert(value, param, ctx)
        return Decimal(str(value))


class MinimizeChoice(ParameterType):
    """``cost``, ``latency``, or what both weigh: ``cost=1,latency=0.002``."""

    name = "cost|latency|weights"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value in get_args(Minimize):
            return value
        weights = {}
        for each in value.split(","):
            name, _, weight = each.strip().partition("=")
            try:
                weights[name.strip()] = float(weight)
            except ValueError:
                weights = {}
                break
        try:
            return Policy(minimize=weights).minimize
        except ConfigurationError:
            self.fail(
                f"{value!r} is none of cost, latency, or weights such as cost=1,latency=0.002.", param, ctx
            )

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in get_args(Minimize) if name.startswith(incomplete)]


class TagPair(ParameterType):
    """``name=value``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is no tag; write NAME=VALUE, such as team=search.", param, ctx)
        return name, text


class ModelName(ParameterType):
    """A model's name; completed from the configuration and the presets, never from the network."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        settings = known_settings(ctx)
        return [CompletionItem(name) for name in model_names(settings) if name.startswith(incomplete)]


class PolicyName(ParameterType):
    """The name of a ``[policies.NAME]`` table."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        settings = known_settings(ctx)
        names = settings.policies if settings else {}
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class ProviderName(ParameterType):
    """The part of a model's name before the slash."""

    name = "provider"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        settings = known_settings(ctx)
        names = dict.fromkeys(["local", *PRESETS, *(settings.providers if settings else ())])
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def model_names(settings: Settings | None) -> list[str]:
    """Return the model names that can be told without asking anyone, and every provider's prefix."""
    own = [*settings.candidates, *(f"local/{name}" for name in settings.local.models)] if settings else []
    listed = [f"{p}/{m}" for p, table in settings.providers.items() for m in table.models] if settings else []
    prefixes = [f"{name}/" for name in (*PRESETS, *(settings.providers if settings else ()))]
    return list(dict.fromkeys([AUTO, "local/demo", "local/demo-target", *own, *listed, *prefixes]))


def model_option(function: F) -> F:
    """Add ``-m/--model``."""
    return click.option(
        "-m",
        "--model",
        type=ModelName(),
        help="PROVIDER/MODEL, a bare name of the default provider, or 'auto' to let a policy choose. "
        "Default: SPECCLIENT_MODEL, else default_model of the configuration, else local/demo.",
    )(function)


def sampling_options(function: F) -> F:
    """Add what decides how an answer is drawn and when it ends."""
    for option in reversed(
        [
            click.option(
                "--max-tokens",
                type=click.IntRange(min=1),
                help="Most tokens to generate. Default: 128 for text; the server's own for chats.",
            ),
            click.option(
                "--temperature",
                type=NonNegativeFloat(),
                help="0 always takes the likeliest token. Default: 0 for local models, else the server's.",
            ),
            click.option(
                "--top-p",
                type=NonNegativeFloat(1, above_zero=True),
                help="Draw from this share of the probability.",
            ),
            click.option("--seed", type=int, help="Make a sampled answer repeatable."),
            click.option("--stop", multiple=True, help="End the answer before this text; may be repeated."),
            click.option(
                "--draft-length",
                type=click.IntRange(min=0),
                help="Tokens drafted for each verification, local models only; 0 decodes plainly. "
                "Default: adapted to the measured acceptance.",
            ),
        ]
    ):
        function = option(function)
    return function


#: Names of what :func:`policy_options` adds, as commands are handed them.
POLICY = (
    "policy_name", "minimize", "max_latency", "max_ttft", "max_cost", "percentile", "min_quality", "allow",
    "deny", "local_only", "task", "deadline", "no_fallbacks", "hedge", "explore",
)  # fmt: skip


#: What they are called in a policy.
_FIELDS = {
    "minimize": "minimize", "max_latency": "max_latency_s", "max_ttft": "max_ttft_s",
    "max_cost": "max_cost_usd", "percentile": "percentile", "min_quality": "min_quality", "allow": "allow",
    "deny": "deny", "local_only": "local_only", "task": "task", "deadline": "deadline_s", "hedge": "hedge",
    "explore": "explore",
}  # fmt: skip


def policy_options(function: F) -> F:
    """Add what a policy is made of."""
    for option in reversed(
        [
            click.option(
                "--policy",
                "policy_name",
                type=PolicyName(),
                help="Route by this [policies.NAME] of the configuration; other options here change it.",
            ),
            click.option(
                "--minimize",
                type=MinimizeChoice(),
                help="Route to what is predicted to be cheapest (cost), or fastest (latency); or say what a "
                "dollar and a second weigh: cost=1,latency=0.002.",
            ),
            click.option(
                "--max-latency",
                type=NonNegativeFloat(),
                help="Rule out what is predicted to take more seconds.",
            ),
            click.option(
                "--max-ttft",
                type=NonNegativeFloat(),
                help="Rule out what is predicted to take more seconds to its first token.",
            ),
            click.option(
                "--max-cost", type=DollarAmount(), help="Rule out what is predicted to cost more dollars."
            ),
            click.option(
                "--percentile",
                type=click.FloatRange(0, 1, min_open=True, max_open=True),
                help="The share of calls that must keep the limits of time. Default: 0.95.",
            ),
            click.option(
                "--min-quality",
                type=NonNegativeFloat(1),
                help="Rule out models of a lower tier, from 0 to 1.",
            ),
            click.option(
                "--allow",
                multiple=True,
                metavar="ROUTE",
                help="Route to this one, or to those that begin so (local/), alone; may be repeated.",
            ),
            click.option(
                "--deny",
                multiple=True,
                metavar="ROUTE",
                help="Never route to this one, or to those that begin so; may be repeated.",
            ),
            click.option("--local-only", is_flag=True, help="Let nothing leave this machine."),
            click.option(
                "--task",
                type=click.Choice([*get_args(PromptTask), "auto"]),
                help="What kind of prompt it is. Default: told from the prompt.",
            ),
            click.option(
                "--deadline",
                type=NonNegativeFloat(above_zero=True),
                help="Seconds for all tries, fallbacks included.",
            ),
            click.option("--no-fallbacks", is_flag=True, help="Fail where the chosen route fails."),
            click.option(
                "--hedge",
                type=NonNegativeFloat(1),
                metavar="SHARE",
                help="Ask a second route too where the first is unusually slow, for at most this share of "
                "calls.",
            ),
            click.option(
                "--explore",
                type=NonNegativeFloat(1),
                metavar="SHARE",
                help="Send this share of calls where more is to be learned. Default: 0.05.",
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
    """Return the text that an argument is, or what stdin holds where it is ``-``.

    Raises:
        click.UsageError: bytes that are no text.
    """
    try:
        text = sys.stdin.read() if argument == "-" else argument
        text.encode()  # bytes that could not be read may be kept as lone surrogates
    except UnicodeError:
        where = "stdin" if argument == "-" else "the prompt"
        raise click.UsageError(f"{where} is no UTF-8 text; convert it, with iconv for instance.") from None
    return text


def policy_of(settings: Settings, **given: Any) -> Policy | None:
    """Return the policy that the options stand for, None where there are none of them.

    Args:
        given: of :data:`POLICY`, those that there are.

    Raises:
        ConfigurationError: a name that is not configured, or values that no policy has.
    """
    words = {field: given.get(name) for name, field in _FIELDS.items()}
    changes = {
        field: value for field, value in words.items() if not (value is None or value is False or value == ())
    }
    if given.get("no_fallbacks"):
        changes["fallbacks"] = False
    policy_name = given.get("policy_name")
    if policy_name is None and not changes:
        return None
    base = Policy() if policy_name is None else settings.policy_named(policy_name)
    return dataclasses.replace(base, **changes)


def model_of(settings: Settings, model: str | None, policy: Policy | None) -> str:
    """Return the model to ask for: the one named, ``auto`` where a policy is to choose, or the default.

    Raises:
        click.UsageError: a policy together with the name of a model.
    """
    if policy is None:
        return model or settings.default_model
    if model not in (None, AUTO):
        raise click.UsageError(f"a policy chooses the model, so -m {model} cannot be given with it.")
    return AUTO
