"""The description of one method of the OpenAI API: its path, parameters and response type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiMethod:
    """One method, as https://platform.openai.com/docs/api-reference has it.

    Attributes:
        name: the method's name on a client: ``chat.completions.create``.
        verb: the HTTP method, in capitals.
        path: appended to the base URL; ``{file_id}`` is replaced by the positional argument of that name.
        params: the keyword arguments, without those of every call (``extra_headers``, ``timeout``, …).
        query: the ``params`` that are sent in the query; for GET and DELETE, all are.
        files: the ``params`` that hold files; if there are any, the body is multipart.
        response_type: the type of the result: one of our classes, or its name; ``bytes``, ``str``, ``None``
            for no result, ``object`` for decoded JSON; any other type that pydantic validates.
        page: the page classes of a method that lists items of ``response_type``; else None.
        event_type: the type of the events if ``stream=True``: one of our classes, its name, or a function of
            the event's bytes; None if the method does not stream.
        metered: whether a model serves it; the call is then routed by its ``model`` and recorded.
        operation: its name in the ledger; by default ``name``.
        headers: headers that are sent with every request.
    """

    name: str
    verb: str
    path: str
    params: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    response_type: Any = None
    page: Any = None
    event_type: Any = None
    metered: bool = False
    operation: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.operation:
            object.__setattr__(self, "operation", self.name)
