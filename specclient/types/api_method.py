"""What one method of the OpenAI API is: a row that says where it is sent, what it takes and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiMethod:
    """One method, as https://platform.openai.com/docs/api-reference has it.

    Attributes:
        name: where it is on a client: ``chat.completions.create``.
        verb: of HTTP, in capitals.
        path: after the base URL; ``{file_id}`` stands for a positional argument of that name.
        params: the keywords it takes, beside those of every call (``extra_headers``, ``timeout``, …).
        query: those of ``params`` that go into the query; of a GET or DELETE, all do.
        files: those of ``params`` that hold files; where there are any, the body is multipart.
        gives: what its answer becomes: a class of ours, or the name of one; ``bytes``, ``str``, ``None`` for
            nothing, ``object`` for plain decoded JSON; any other type pydantic knows.
        page: how it lists, ``gives`` being what it lists; None where it does not.
        event: what each event becomes where ``stream=True`` is given: a class of ours, the name of one, or a
            function of the event's bytes; None where it does not stream.
        metered: whether a model works on it: then it is routed by its ``model`` and recorded as a call.
        operation: what the ledger calls it; ``name`` where empty.
        headers: sent with it.
    """

    name: str
    verb: str
    path: str
    params: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    gives: Any = None
    page: Any = None
    event: Any = None
    metered: bool = False
    operation: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.operation:
            object.__setattr__(self, "operation", self.name)
