"""The options of a client, their checks, and the settings that follow from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, get_args

from specclient.client.workload_identity import (
    PLACEHOLDER_KEY,
    WorkloadIdentity,
    WorkloadIdentityAuth,
    X509WorkloadIdentity,
    is_certificate_identity,
)
from specclient.config import Settings, load
from specclient.errors import ConfigurationError, OpenAIError
from specclient.providers.custom import Provider
from specclient.providers.endpoint import KeySource
from specclient.resources.signatures import LazySignature
from specclient.types.budget import Budget
from specclient.types.limit import ResponseLimits
from specclient.types.params import NOT_GIVEN
from specclient.types.policy import Policy

DEFAULT_MAX_RETRIES = 2
#: The regions in which OpenAI stores and processes data
#: (https://platform.openai.com/docs/guides/your-data#data-residency-controls).
DataResidency = Literal["global", "us", "eu", "ae", "au", "in", "jp"]


class ClientOptions(TypedDict, total=False):
    """The options of a client; all are optional.

    Options of the OpenAI client, which apply to the default provider:

    Attributes:
        api_key: a string, or a function that returns one and is called before each attempt.
        admin_api_key: the key of ``client.admin``.
        workload_identity: exchanged for access tokens, in place of ``api_key``; see :mod:`specclient.auth`.
        organization, project: sent as ``OpenAI-Organization`` and ``OpenAI-Project``.
        webhook_secret: the secret that webhooks are signed with.
        provider: only None; name a cloud in the model instead, as ``bedrock/MODEL`` or ``vertex/MODEL``.
        base_url: the URL of the API.
        data_residency: a region of OpenAI's, instead of ``base_url``.
        websocket_base_url: the URL of WebSockets; by default that of the API.
        timeout: seconds, an ``httpx.Timeout``, or None for no limit.
        max_retries: the number of attempts after the first.
        default_headers, default_query: added to every request.
        http_client: an ``httpx`` client to use instead of our own transport.
        _strict_response_validation: has no effect. A response that is not JSON or lacks a field that callers
            need is always an error; other deviations from the types never are.
        _enforce_credentials: has no effect. A missing key is an error at the first call.

    Our own options:

    Attributes:
        config: the path of a configuration file, or :class:`Settings`; by default the file is searched for.
        ledger: a path, a database URL, or ``"off"``.
        ledger_durability: ``"batch"``, or ``"sync"`` to return from a call when its row is on the disk.
        policy, candidates: the policy and the destinations of calls with ``model="auto"``.
        providers: additional providers, or changes to known ones.
        drop_params: whether parameters that an endpoint does not support are dropped instead of refused.
        pacing: whether calls wait for the limits that responses report; configured limits always apply.
        response_limits: limits on the size of a response, instead of the configured ones.
        budgets: limits on cost or tokens; replaces a configured budget of the same name.
    """

    api_key: str | KeySource | None
    admin_api_key: str | None
    workload_identity: WorkloadIdentity | X509WorkloadIdentity | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    provider: Any
    base_url: Any
    data_residency: DataResidency | None
    websocket_base_url: Any
    timeout: Any
    max_retries: int
    default_headers: Mapping[str, Any] | None
    default_query: Mapping[str, object] | None
    http_client: Any
    _strict_response_validation: bool
    _enforce_credentials: bool | None
    config: str | Path | Settings | None
    ledger: str | None
    ledger_durability: Literal["batch", "sync"] | None
    policy: Policy | str | None
    candidates: Sequence[str] | None
    providers: Sequence[Provider] | None
    drop_params: bool | None
    pacing: bool | None
    response_limits: ResponseLimits | None
    budgets: Sequence[Budget] | None


#: Options that copies of a client cannot change, because they share the resulting objects.
SHARED = frozenset({"budgets", "config", "ledger", "ledger_durability", "pacing"})
OPTION_NAMES = frozenset(ClientOptions.__annotations__)
#: The defaults that are not None; ``NOT_GIVEN`` where None means no limit.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "timeout": NOT_GIVEN,
    "max_retries": DEFAULT_MAX_RETRIES,
    "_strict_response_validation": False,
    "_enforce_credentials": True,
}
Init = TypeVar("Init", bound=Callable[..., None])


def with_option_names(options: type) -> Callable[[Init], Init]:
    """Return a decorator that lets :mod:`inspect` see the options of a constructor as its keywords.

    Args:
        options: the ``TypedDict`` of the options.
    """

    def make() -> inspect.Signature:
        kinds = inspect.Parameter
        keywords = [
            kinds(
                name,
                kinds.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in options.__annotations__.items()
        ]
        itself = kinds("self", kinds.POSITIONAL_OR_KEYWORD)
        return inspect.Signature([itself, *keywords], return_annotation=None)

    def decorate(init: Init) -> Init:
        vars(init)["__signature__"] = LazySignature(make)
        return init

    return decorate


def checked_options(cls: type, options: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown option."""
    unknown = options.keys() - OPTION_NAMES
    if unknown:
        raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {sorted(unknown)[0]!r}")


def workload_auth_of(
    options: Mapping[str, Any], earlier: WorkloadIdentityAuth | None
) -> WorkloadIdentityAuth | None:
    """Return the authorizer of the ``workload_identity`` option; None without the option.

    Args:
        options: the options of a client.
        earlier: the authorizer of the copied client; it is shared if the identities are equal.

    Raises:
        OpenAIError: a key is given, too; or the identity is invalid.
    """
    identity, key = options.get("workload_identity"), options.get("api_key")
    if identity is None:
        return None
    if key is not None and key != PLACEHOLDER_KEY:
        raise OpenAIError("The `api_key` and `workload_identity` arguments are mutually exclusive")
    http_client = options.get("http_client")
    is_same = earlier is not None and earlier.workload_identity == identity
    if is_same and getattr(earlier, "http_client", http_client) is http_client:  # whose certificate is shown
        return earlier
    if not is_certificate_identity(identity):
        return WorkloadIdentityAuth(workload_identity=identity)
    from specclient.client.certificate_identity import CertificateIdentityAuth  # noqa: PLC0415 - rare

    retries = checked_retries(options.get("max_retries", DEFAULT_MAX_RETRIES))
    return CertificateIdentityAuth(workload_identity=identity, http_client=http_client, max_retries=retries)


def with_one_credential(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed options of a copy, in which a key and an identity replace each other."""
    replaced = dict(changes)
    for name, other in (("api_key", "workload_identity"), ("workload_identity", "api_key")):
        if changes.get(name) is not None and other not in changes:
            replaced[other] = None
    return replaced


def check_provider(options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if the ``provider`` option is given."""
    if options.get("provider") is not None:
        raise ConfigurationError(
            "provider= is not supported; name the cloud in the model instead: model='bedrock/MODEL' or "
            "model='vertex/MODEL', with the settings of [providers.bedrock] or [providers.vertex] in "
            "specclient.toml. specclient.BedrockOpenAI has Bedrock's OpenAI-compatible API"
        )


def checked_retries(value: Any) -> int:
    """Return ``max_retries`` after a check.

    Raises:
        TypeError: the value is not an int, as in the OpenAI client.
        ConfigurationError: the value is negative.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"max_retries is {value!r}; it must be a whole number, 0 or more (0 switches retries off)"
        )
    if value < 0:
        raise ConfigurationError(f"max_retries is {value}; it must be 0 or more")
    return value


def providers_of(given: Any) -> Sequence[Provider]:
    """Return the value of the ``providers`` option as a list.

    Raises:
        ConfigurationError: an item is not a :class:`Provider`.
    """
    providers = [] if given is None else [given] if isinstance(given, Provider) else list(given)
    for each in providers:
        if not isinstance(each, Provider):
            raise ConfigurationError(
                f"providers contains a {type(each).__name__}; it must be a list of specclient.Provider"
            )
    return providers


def base_url_of(options: Mapping[str, Any]) -> Any:
    """Return the base URL that the options set, or None.

    Raises:
        ConfigurationError: ``data_residency`` is unknown, or given together with a base URL.
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
    if is_certificate_identity(options.get("workload_identity")):
        from specclient.client.certificate_identity import mtls_base_url  # noqa: PLC0415 - rare

        return mtls_base_url(residency)
    return f"https://{'' if residency == 'global' else f'{residency}.'}api.openai.com/v1"


def response_limits_of(given: Any) -> ResponseLimits | None:
    """Return the value of the ``response_limits`` option.

    Raises:
        ConfigurationError: it is not a :class:`ResponseLimits`.
    """
    if given is not None and not isinstance(given, ResponseLimits):
        raise ConfigurationError(
            f"response_limits is a {type(given).__name__}; it must be a specclient.ResponseLimits"
        )
    return given


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return the settings of the ``config`` option or the configuration file, changed by other options."""
    config = options.get("config")
    replacing = ("ledger", "ledger_durability", "pacing")
    changes = {name: options[name] for name in replacing if options.get(name) is not None}
    return config.model_copy(update=changes) if isinstance(config, Settings) else load(config, **changes)


def budgets_of(settings: Settings, given: Any) -> list[Budget]:
    """Return the budgets of the option, and those of the settings with other names.

    Raises:
        ConfigurationError: an item is not a :class:`Budget`, or two items have one name.
    """
    if not given:
        return settings.budget_list()
    by_name: dict[str, Budget] = {}
    for each in given:
        if not isinstance(each, Budget):
            raise ConfigurationError(
                f"budgets contains a {type(each).__name__}; it must be a list of specclient.Budget"
            )
        if each.name in by_name:
            raise ConfigurationError(f"budgets contains the name {each.name!r} twice; names must be unique")
        by_name[each.name] = each
    return [*(each for each in settings.budget_list() if each.name not in by_name), *by_name.values()]


def policy_of(settings: Settings, policy: Policy | str | None) -> Policy:
    """Return the policy of an option: a configured policy for a name, the default policy for None."""
    return settings.policy_named(policy) if isinstance(policy, str) else policy or Policy()
