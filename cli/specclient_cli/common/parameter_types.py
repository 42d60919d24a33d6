"""Types of parameters: numbers, money, criteria, limits, tags, and names with shell completion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from specclient.config import Settings
from specclient.errors import ConfigurationError
from specclient.providers import PRESETS
from specclient.types.criterion import CRITERIA
from specclient.types.policy import Policy
from specclient_cli.common.state import known_settings

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # generic in recent versions only

AUTO = "auto"


class NonNegativeFloat(click.FloatRange):
    """A finite number of 0 or more."""

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
    """An exact amount of money."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        super().convert(value, param, ctx)
        return Decimal(str(value))


class MinimizeChoice(ParameterType):
    """A criterion (``cost``, ``latency``), or the weights of several: ``cost=1,latency=0.002``."""

    name = "criterion|weights"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value in CRITERIA.weighable:
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
            names = ", ".join(CRITERIA.weighable)
            self.fail(f"{value!r} is none of {names}, or weights such as cost=1,latency=0.002.", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in CRITERIA.weighable if name.startswith(incomplete)]


class LimitPair(ParameterType):
    """A limit on a criterion, by the field of its bound: ``max_cost_usd=0.01``."""

    name = "field=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        field, _, limit = str(value).partition("=")
        try:
            Policy(limits={field.strip(): float(limit)})
        except (ConfigurationError, ValueError):
            fields = ", ".join(CRITERIA.bounds)
            self.fail(f"{value!r} is no limit; write FIELD=VALUE, with one of {fields}.", param, ctx)
        return field.strip(), float(limit)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(f"{name}=") for name in CRITERIA.bounds if name.startswith(incomplete)]


class TagPair(ParameterType):
    """``name=value``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not a tag; write NAME=VALUE, such as team=search.", param, ctx)
        return name, text


class BilledKeyPair(ParameterType):
    """``billed=value``: a key as a vendor's bill names it, and the value of the calls' tag for it."""

    name = "billed=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        billed, equals, text = str(value).partition("=")
        if not equals or not billed:
            self.fail(
                f"{value!r} does not map a key; write BILLED=VALUE, the key of the bill and the tag's value "
                "for it, such as key_AbC=search.",
                param,
                ctx,
            )
        return billed, text


class AliasPair(ParameterType):
    """``name=model``."""

    name = "name=model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, _, model = str(value).partition("=")
        if not name or not model:
            self.fail(f"{value!r} is not an alias; write NAME=MODEL, such as gpt-4o=local/demo.", param, ctx)
        return name, model


class SettingsName(ParameterType):
    """A name whose completions come from the configuration and the presets, never from the network."""

    def names(self, settings: Settings | None) -> Iterable[str]:
        """Return the names; the settings are None where the configuration cannot be read."""
        raise NotImplementedError

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = self.names(known_settings(ctx))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class ModelName(SettingsName):
    """A model's name."""

    name = "model"

    def names(self, settings: Settings | None) -> Iterable[str]:
        return model_names(settings)


class PolicyName(SettingsName):
    """The name of a ``[policies.NAME]`` table."""

    name = "name"

    def names(self, settings: Settings | None) -> Iterable[str]:
        return settings.policies if settings else ()


class ProviderName(SettingsName):
    """The part of a model's name before the slash."""

    name = "provider"

    def names(self, settings: Settings | None) -> Iterable[str]:
        return dict.fromkeys(["local", *PRESETS, *(settings.providers if settings else ())])


def model_names(settings: Settings | None) -> list[str]:
    """Return the model names known without a request, and the prefix of every provider."""
    own = [*settings.candidates, *(f"local/{name}" for name in settings.local.models)] if settings else []
    own += [name for name in settings.aliases if name.isprintable() and "*" not in name] if settings else []
    listed = [f"{p}/{m}" for p, table in settings.providers.items() for m in table.models] if settings else []
    prefixes = [f"{name}/" for name in (*PRESETS, *(settings.providers if settings else ()))]
    return list(dict.fromkeys([AUTO, "local/demo", "local/demo-target", *own, *listed, *prefixes]))
