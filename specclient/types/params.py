"""What stands for an argument not given, and the keywords that every call takes beside the API's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

from specclient.types.route import Policy
from specclient.types.strategy import Strategy

T = TypeVar("T")


class NotGiven:
    """The value of a parameter that was not given, where ``None`` would mean ``null``."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


class Omit:
    """The value of what is to be left out: of a parameter, or of a header that would be sent otherwise."""

    def __bool__(self) -> Literal[False]:
        return False


NOT_GIVEN: Final = NotGiven()
not_given: Final = NOT_GIVEN
omit: Final = Omit()

Omittable: TypeAlias = T | NotGiven | Omit


class RequestOptions(TypedDict, total=False):
    """What a call by its path takes (``client.get``, ``client.post``)."""

    headers: Mapping[str, str | Omit]
    max_retries: int
    timeout: Any
    params: Mapping[str, Any]
    extra_json: Mapping[str, Any]
    idempotency_key: str
    follow_redirects: bool


class CallOptions(TypedDict, total=False):
    """What any call takes beside the API's own parameters.

    ``policy`` (a :class:`Policy`, or the name of one in the configuration) routes the call; ``tags`` label
    it in the ledger, and ``session`` names what it is a part of; ``strategy`` (a :class:`Strategy`, or its
    kind) plays speculation from this side; ``drop_params`` leaves out what the endpoint cannot express;
    ``deadline_s`` is how many seconds all of its tries and the waits between them may take. These are ours;
    the rest is the OpenAI client's.
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
