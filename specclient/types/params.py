"""Sentinels for arguments that are not given, and the options of every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeGuard, TypeVar

from specclient.types.cache_options import CacheSetting
from specclient.types.policy import Policy
from specclient.types.strategy import Strategy

T = TypeVar("T")


class NotGiven:
    """The default of a parameter for which ``None`` would mean ``null``."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


class Omit:
    """The value of a parameter or header to leave out of the request, even if it would be sent by default."""

    def __bool__(self) -> Literal[False]:
        return False


NOT_GIVEN: Final = NotGiven()
not_given: Final = NOT_GIVEN
omit: Final = Omit()

Omittable: TypeAlias = T | NotGiven | Omit

#: The names of the sentinels' classes, and the packages that define such classes.
_SENTINELS, _PACKAGES = frozenset({"NotGiven", "Omit"}), frozenset({"specclient", "openai", "anthropic"})


def is_given(value: Omittable[T]) -> TypeGuard[T]:
    """Return whether a value is no sentinel, neither of this package nor of ``openai`` or ``anthropic``.

    Libraries that are written for those packages pass on their sentinels. The packages are not imported.
    """
    kind = type(value)
    return kind.__name__ not in _SENTINELS or kind.__module__.partition(".")[0] not in _PACKAGES


class RequestOptions(TypedDict, total=False):
    """The options of calls by path, such as ``client.get`` and ``client.post``."""

    headers: Mapping[str, str | Omit]
    max_retries: int
    timeout: Any
    params: Mapping[str, Any]
    extra_json: Mapping[str, Any]
    idempotency_key: str
    follow_redirects: bool
    security: Mapping[str, bool]


class CallOptions(TypedDict, total=False):
    """The options of every call, in addition to the API's parameters.

    ``policy`` (a :class:`Policy`, or the name of one in the configuration) routes the call. ``tags`` are
    stored with it in the ledger, and ``session`` is the conversation or agent run that it belongs to.
    ``strategy`` (a :class:`Strategy`, or its kind) selects client-side speculation. ``drop_params`` drops
    parameters that the endpoint does not support. ``deadline_s`` limits all attempts and the waits between
    them, in seconds. ``cache`` lets the response cache answer: True, a maximum age in seconds, or
    :class:`CacheOptions`; False turns a configured cache off. These options are specclient's; the others are
    those of the OpenAI client.
    """

    extra_headers: Mapping[str, str | Omit | None] | None
    extra_query: Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    timeout: Any
    policy: Policy | str | None
    tags: Mapping[str, str] | None
    session: str | None
    strategy: Strategy | str | None
    drop_params: bool | None
    deadline_s: float | None
    cache: CacheSetting | None
