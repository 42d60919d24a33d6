"""Turn the name of an OpenAI type into a class whose objects have whatever fields came."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model
from typing_extensions import TypeAliasType

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
