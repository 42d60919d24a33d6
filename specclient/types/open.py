"""Open classes and unions: types without declared fields, whose objects have the fields of their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union, cast

from pydantic import Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypeAliasType

from specclient.runtime.forks import import_lock
from specclient.types.base import WireModel


class OpenObject(WireModel):
    """An object without declared fields. Its attributes, also of nested objects, are the received fields.

    ``model_dump()`` returns exactly the received JSON.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:
        __pydantic_extra__: dict[str, OpenValue]


#: The value of an open object's attribute. Members are tried from left to right; other values are unchanged.
OpenValue = TypeAliasType(
    "OpenValue", Annotated["OpenObject | list[OpenValue] | Any", Field(union_mode="left_to_right")]
)


@cache
def open_class(path: str) -> type[OpenObject]:
    """Return the open class at ``path`` in ``specclient.types``, such as ``beta.threads.Run``.

    The same path returns the same class. Pickle finds it by its module if the path is an OpenAI type.
    """
    package, _, name = path.rpartition(".")
    module = "specclient.types" + (f".{package}" if package else "")
    made = create_model(name, __base__=OpenObject, __module__=module, __doc__=f"OpenAI's ``{path}``.")
    made.model_rebuild(_types_namespace=globals())  # OpenValue is not defined in the class's module
    return made


@dataclass(frozen=True, slots=True, eq=False)
class OneOfOpen:
    """Marks a union of open classes.

    Attributes:
        field: the discriminator field.
        classes: the classes by the field's value; an object with another value is an :class:`OpenObject`.
    """

    field: str
    classes: Mapping[str, type[OpenObject]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a validator that makes an object of one of the classes; part of pydantic's protocol."""
        return core_schema.no_info_plain_validator_function(
            self._made, serialization=core_schema.simple_ser_schema("any")
        )

    def _made(self, value: Any) -> OpenObject:
        if isinstance(value, OpenObject):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("model_type", "not an object")
        word = value.get(self.field)
        kind = self.classes.get(word, OpenObject) if isinstance(word, str) else OpenObject
        return kind.model_validate(value)


@cache
def open_union(path: str) -> Any:
    """Return the union of open classes at ``path``, such as ``beta.AssistantStreamEvent``."""
    with import_lock:
        from specclient.openai_api.unions import UNIONS  # noqa: PLC0415 - rarely needed

    field, words = UNIONS[path]
    classes = {word: open_class(name) for word, name in words.items()}
    union = cast("Any", Union)[tuple(dict.fromkeys(classes.values()))]
    return cast("Any", Annotated)[union, OneOfOpen(field, classes)]
