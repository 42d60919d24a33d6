"""Turn what a client is given into checked values: its options, and what they say of settings and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from specclient.config import Settings, load
from specclient.errors import ConfigurationError
from specclient.providers.custom import Provider
from specclient.providers.endpoint import KeySource
from specclient.types.budget import Budget
from specclient.types.route import Policy

DEFAULT_MAX_RETRIES = 2
#: Where OpenAI keeps and processes data, and the URL that sends it there
#: (https://platform.openai.com/docs/guides/your-data#data-residency-controls).
DataResidency = Literal["global", "us", "eu", "ae", "au", "in", "jp"]


class ClientOptions(TypedDict, total=False):
    """What a client takes; every option may be left out.

    Those of the OpenAI client: ``api_key`` (a string, or a function that returns one and is asked before
    each try), ``admin_api_key``, ``organization``, ``project``, ``webhook_secret``, ``base_url`` or
    ``data_residency``, ``timeout``, ``max_retries``, ``default_headers``, ``default_query`` (of the default
    provider), ``http_client``.

    Ours: ``config`` (a path, or :class:`Settings`; searched for otherwise), ``ledger`` (a path or URL, or
    ``"off"``), ``ledger_durability`` (``"batch"``, or ``"sync"`` for calls that return when their row is on
    the disk), ``policy`` and ``candidates`` (of calls with ``model="auto"``), ``providers`` (more of them,
    or changes to known ones), ``drop_params`` (leaves out what an endpoint cannot express), ``budgets``
    (limits on what calls may cost; one takes the place of the configuration's of its name).
    """

    api_key: str | KeySource | None
    admin_api_key: str | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    base_url: Any
    data_residency: DataResidency | None
    websocket_base_url: Any
    timeout: Any
    max_retries: int
    default_headers: Mapping[str, Any] | None
    default_query: Mapping[str, object] | None
    http_client: Any
    config: str | Path | Settings | None
    ledger: str | None
    ledger_durability: Literal["batch", "sync"] | None
    policy: Policy | str | None
    candidates: Sequence[str] | None
    providers: Sequence[Provider] | None
    drop_params: bool | None
    budgets: Sequence[Budget] | None


#: Options of a client that its copies cannot change: they share what was made of them.
SHARED = frozenset({"budgets", "config", "ledger", "ledger_durability"})
OPTION_NAMES = frozenset(ClientOptions.__annotations__)


def checked_options(cls: type, options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that no client takes."""
    unknown = options.keys() - OPTION_NAMES
    if unknown:
        raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {sorted(unknown)[0]!r}")


def checked_retries(value: Any) -> int:
    """Return a number of retries.

    Raises:
        TypeError, ValueError: for what is none, as the OpenAI client does.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"max_retries is {value!r}; it must be a whole number, 0 or more (0 switches retries off)"
        )
    if value < 0:
        raise ConfigurationError(f"max_retries is {value}; it must be 0 or more")
    return value


def providers_of(given: Any) -> Sequence[Provider]:
    """Return the providers that an option holds.

    Raises:
        ConfigurationError: for what is none.
    """
    listed = [] if given is None else [given] if isinstance(given, Provider) else list(given)
    for each in listed:
        if not isinstance(each, Provider):
            raise ConfigurationError(
                f"providers holds a {type(each).__name__}; it must be a list of specclient.Provider"
            )
    return listed


def base_url_of(options: Mapping[str, Any]) -> Any:
    """Return the base URL that options name, None where they name none.

    Raises:
        ConfigurationError: for two of them, or a residency that there is none of.
    """
    base_url, residency = options.get("base_url"), options.get("data_residency")
    if residency is None:
        return base_url
    if base_url is not None or options.get("websocket_base_url") is not None:
        raise ConfigurationError("data_residency and a base_url cannot both be given; leave one of them out")
    if residency not in get_args(DataResidency):
        raise ConfigurationError(
            f"data_residency is {residency!r}; it must be one of {', '.join(get_args(DataResidency))}"
        )
    return f"https://{'' if residency == 'global' else f'{residency}.'}api.openai.com/v1"


def settings_of(options: Mapping[str, Any]) -> Settings:
    config = options.get("config")
    named = {name: options[name] for name in ("ledger", "ledger_durability") if options.get(name) is not None}
    return config.model_copy(update=named) if isinstance(config, Settings) else load(config, **named)


def budgets_of(settings: Settings, given: Any) -> list[Budget]:
    """Return the budgets of the settings and of an option, whose own win.

    Raises:
        ConfigurationError: for what is none, or two of one name in the option.
    """
    if not given:
        return settings.budget_list()
    named: dict[str, Budget] = {}
    for each in given:
        if not isinstance(each, Budget):
            raise ConfigurationError(
                f"budgets holds a {type(each).__name__}; it must be a list of specclient.Budget"
            )
        if each.name in named:
            raise ConfigurationError(f"budgets holds two of the name {each.name!r}; give each its own")
        named[each.name] = each
    return [*(each for each in settings.budget_list() if each.name not in named), *named.values()]


def policy_of(settings: Settings, policy: Policy | str | None) -> Policy:
    return settings.policy_named(policy) if isinstance(policy, str) else policy or Policy()
