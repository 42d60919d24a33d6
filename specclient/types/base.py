"""The common ground of wire objects: pydantic models that keep unknown fields and forgive missing ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic
import pydantic_core
from pydantic import AfterValidator, Field

if TYPE_CHECKING:
    # What the API promises, and what a type checker should hold users' code to.
    Whole = int
    Content = str
    JsonText = str
else:
    _LEFT = Field(union_mode="left_to_right")  # the right-hand type is only tried where the left one fails

    #: A number of seconds; some servers send fractions, which are cut off.
    Whole = Annotated[
        int | Annotated[float, Field(allow_inf_nan=False), AfterValidator(int)],
        _LEFT,
    ]
    #: Text; some servers (Mistral's reasoning models) send a list of parts, which is kept as it came.
    Content = Annotated[str | list[Any], _LEFT]
    #: JSON as text; some servers send the object itself, which becomes text.
    JsonText = Annotated[str | Annotated[dict[str, Any], AfterValidator(json.dumps)], _LEFT]


class WireModel(pydantic.BaseModel):
    """An object as it came over the wire.

    Unknown fields are kept (``model_extra``, and in every dump); schemas are built on first use, so
    importing the package stays cheap.
    """

    model_config = pydantic.ConfigDict(
        extra="allow", defer_build=True, protected_namespaces=(), coerce_numbers_to_str=True
    )

    @classmethod
    def received(cls, content: bytes) -> Self:
        """Return the object that ``content`` is as JSON; a null where a value belongs counts as left out.

        Nulls are only looked for where validation fails, so an answer in order costs nothing more.

        Raises:
            pydantic.ValidationError: for what is no such object. It quotes its input, which may hold secrets.
        """
        try:
            return cls.model_validate_json(content)
        except pydantic.ValidationError as error:
            places = [problem["loc"] for problem in error.errors() if problem["input"] is None]
            if not places:
                raise
        body = pydantic_core.from_json(content)
        for place in places:
            _drop_null(body, place)
        return cls.model_validate(body)

    def to_dict(self, *, exclude_unset: bool = True) -> dict[str, Any]:
        """Return the fields that were in the answer, as plain Python objects."""
        return self.model_dump(mode="json", exclude_unset=exclude_unset)

    def to_json(self, *, indent: int | None = 2, exclude_unset: bool = True) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return self.model_dump_json(indent=indent, exclude_unset=exclude_unset)


def _drop_null(body: Any, place: tuple[int | str, ...]) -> None:
    """Remove the null at ``place``, a path into ``body`` that may go on with the names of a union's types."""
    for step in place:
        if isinstance(body, dict) and body.get(step, body) is None:
            del body[step]
            return
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return
