"""Turn the name of an OpenAI type into a class, or a union, whose objects have whatever fields came."""

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
    """An object of no declared fields: what came are its attributes, those of nested objects too.

    ``model_dump()`` gives back exactly what came.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:
        __pydantic_extra__: dict[str, OpenValue]


#: What an attribute of an open object may be. Tried from left to right; of what is no JSON, nothing changes.
OpenValue = TypeAliasType(
    "OpenValue", Annotated["OpenObject | list[OpenValue] | Any", Field(union_mode="left_to_right")]
)


@cache
def open_class(path: str) -> type[OpenObject]:
    """Return the class of open objects that is called ``path``: ``beta.threads.Run``, beneath this package.

    The same path gives the same class, and pickle finds it by its module where the path is an OpenAI type.
    """
    package, _, name = path.rpartition(".")
    module = "specclient.types" + (f".{package}" if package else "")
    made = create_model(name, __base__=OpenObject, __module__=module, __doc__=f"OpenAI's ``{path}``.")
    made.model_rebuild(_types_namespace=globals())  # its own module does not know what an attribute may be
    return made


@dataclass(frozen=True, slots=True, eq=False)
class OneOfOpen:
    """Marks a union of open classes.

    Attributes:
        field: what it says tells which class an object is of.
        classes: by that word; an object that says another is a bare :class:`OpenObject`.
    """

    field: str
    classes: Mapping[str, type[OpenObject]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return what makes an object of one of the classes; pydantic's protocol."""
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
    """Return the union of open classes that is called ``path``: ``beta.AssistantStreamEvent``."""
    with import_lock:
        from specclient.openai_api.unions import UNIONS  # noqa: PLC0415 - few answers are of such a type

    field, words = UNIONS[path]
    classes = {word: open_class(name) for word, name in words.items()}
    union = cast("Any", Union)[tuple(dict.fromkeys(classes.values()))]
    return cast("Any", Annotated)[union, OneOfOpen(field, classes)]
