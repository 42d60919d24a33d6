"""Local tools of a hosted agent, made from an annotated function or from a pydantic model and a handler."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, get_type_hints

import pydantic

from specclient.types.params import Omit, is_given, omit

#: The stage at which a tool failed.
ToolStage = Literal["arguments", "execution", "output"]

_PARTS = {"input_text": "text", "input_image": "image_url"}


def _no_note(_: ToolStage) -> None:
    return None


class FunctionTool:
    """A local tool: pass :attr:`definition` to the agent and the tool in ``tool_handlers={tool.name: tool}``.

    Args:
        model: the pydantic model of the arguments; its schema must be an object schema.
        handler: called with an instance of ``model``.
        name, description: the name and description sent to the model.
        defer_loading: whether the model sees the tool only when it searches for tools.
        encode_output: whether the handler's output is converted by :func:`tool_output`.

    Raises:
        ValueError: the name is empty.
        TypeError: the model's schema is not an object schema.
    """

    def __init__(
        self,
        model: type[pydantic.BaseModel],
        handler: Callable[[Any], Any],
        *,
        name: str,
        description: str,
        defer_loading: bool | Omit = omit,
        encode_output: bool = False,
    ) -> None:
        if not name:
            raise ValueError("name is empty; give the tool a name, by which the model calls it")
        parameters = model.model_json_schema()
        if _resolved(parameters).get("type") != "object":
            raise TypeError(
                f"the schema of {model.__name__} is not that of an object; put a union, a list or a plain "
                "value into a field of a model"
            )
        self._definition: dict[str, Any] = {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": parameters,
        }
        if is_given(defer_loading):
            self._definition["defer_loading"] = defer_loading
        self._model = model
        self._handler = handler
        self._encode_output = encode_output

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        return str(self._definition["name"])

    @property
    def definition(self) -> dict[str, Any]:
        """A copy of the definition, for the agent's ``tools``."""
        return copy.deepcopy(self._definition)

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """Run the handler and return its output; await the output of a coroutine function.

        Raises:
            pydantic.ValidationError: the arguments do not match the model.
        """
        return self.run(arguments)

    def run(self, arguments: dict[str, Any], at: Callable[[ToolStage], None] = _no_note) -> Any:
        """Run the tool as a call does, and call ``at`` with each stage when it begins."""
        at("arguments")
        read = self._model.model_validate(arguments)
        at("execution")
        output = self._handler(read)
        if not self._encode_output:
            return output
        if inspect.isawaitable(output):
            return _AwaitableToolOutput(output, at)
        at("output")
        return tool_output(output)


class _AwaitableToolOutput:
    """An awaitable that converts a handler's result to a tool's output; can be closed instead of awaited."""

    def __init__(self, output: Awaitable[Any], at: Callable[[ToolStage], None]) -> None:
        self._output = output
        self._at = at

    def __await__(self) -> Generator[Any, None, Any]:
        output = yield from self._output.__await__()
        self._at("output")
        return tool_output(output)

    def close(self) -> None:
        discard_awaitable(self._output)


def discard_awaitable(output: Any) -> None:
    """Close or cancel an awaitable that will not be awaited."""
    give_up = getattr(output, "close", None) or getattr(output, "cancel", None)
    if callable(give_up):
        give_up()


def tool_output(output: Any) -> Any:
    """Convert a handler's result for the API: None, text, and text or image parts stay; others become JSON.

    Raises:
        TypeError, ValueError: the result cannot be converted to JSON.
    """
    if isinstance(output, pydantic.BaseModel):
        output = output.model_dump(mode="json")
    if output is None or isinstance(output, str):
        return output
    if isinstance(output, Mapping):
        output = dict(output)
    elif isinstance(output, Iterable) and not isinstance(output, bytes | bytearray):
        output = list(output)
        if output and all(map(_is_part, output)):
            return output
    return json.dumps(output, separators=(",", ":"), allow_nan=False)


def _is_part(value: Any) -> bool:
    """Return whether a value is a message part of the API, and not similar data."""
    field = _PARTS.get(str(value.get("type"))) if isinstance(value, dict) and len(value) == 2 else None
    return field is not None and isinstance(value.get(field), str)


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow the ``$ref`` at the top of a schema, as a recursive model's schema has one."""
    node, seen = schema, set()
    while isinstance(ref := node.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        node = schema
        for step in ref.removeprefix("#/").split("/"):
            node = node[step]
    return node


def pydantic_function_tool(
    model: type[pydantic.BaseModel],
    *,
    handler: Callable[[Any], Any],
    name: str | None = None,
    description: str | None = None,
    defer_loading: bool | Omit = omit,
) -> FunctionTool:
    """Return a tool whose arguments are a pydantic model, and whose output may be any JSON.

    Args:
        model: the model of the arguments; a union must be one of its fields.
        handler: called with an instance; may be a coroutine function with asynchronous clients only.
        name, description: None for the model's own.
        defer_loading: as for :class:`FunctionTool`.

    Raises:
        ValueError, TypeError: as for :class:`FunctionTool`.
    """
    return FunctionTool(
        model,
        handler,
        name=model.__name__ if name is None else name,
        description=(model.__doc__ or "") if description is None else description,
        defer_loading=defer_loading,
        encode_output=True,
    )


def function_tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    defer_loading: bool | Omit = omit,
) -> Any:
    """Return a function as a tool. Also a decorator, with or without arguments (``@function_tool``).

    Every parameter needs a name without a leading underscore and an annotation that pydantic supports.

    Args:
        function: a function, a bound method, or a coroutine function.
        name, description: None for the function's name and docstring.
        defer_loading: as for :class:`FunctionTool`.

    Raises:
        TypeError: a parameter cannot be given by keyword, or has no annotation.
        NameError: an annotation cannot be resolved in the function's module and class.
    """
    if function is None:
        return partial(function_tool, name=name, description=description, defer_loading=defer_loading)
    called = function
    annotations = _annotations(called)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in inspect.signature(called).parameters.values():
        _check_parameter(parameter, annotations)
        field = f"argument_{len(fields)}"  # the parameter's name may be reserved by pydantic
        names[field] = parameter.name
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[field] = (annotations[parameter.name], default)
    config = pydantic.ConfigDict(extra="forbid", alias_generator=names.__getitem__)
    model = pydantic.create_model("ToolArguments", __config__=config, **fields)

    def handler(arguments: pydantic.BaseModel) -> Any:
        return called(**{name: getattr(arguments, field) for field, name in names.items()})

    return pydantic_function_tool(
        model,
        handler=handler,
        name=str(getattr(called, "__name__", "")) if name is None else name,
        description=(inspect.getdoc(called) or "") if description is None else description,
        defer_loading=defer_loading,
    )


def _check_parameter(parameter: inspect.Parameter, annotations: Mapping[str, Any]) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"parameter {parameter} cannot be given by keyword; use pydantic_function_tool")
    if parameter.name.startswith("_") or parameter.name not in annotations:
        raise TypeError(
            f"parameter {parameter.name!r} needs an annotation, and a name without a leading underscore"
        )


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters; the return annotation need not be resolvable."""
    written = inspect.unwrap(function)
    source = getattr(written, "__func__", written)
    owners = _owners(function, source)
    given = {
        name: parameter.annotation
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.annotation is not parameter.empty
    }
    generics = tuple(one for at in (*owners, source) for one in getattr(at, "__type_params__", ()))
    holder = SimpleNamespace(__annotations__=given, __type_params__=generics)
    scope = {name: value for owner in reversed(owners) for name, value in vars(owner).items()}
    return get_type_hints(
        holder, globalns=getattr(source, "__globals__", None), localns=scope, include_extras=True
    )


def _owners(function: Callable[..., Any], source: Any) -> tuple[type, ...]:
    """Return the class that defines a method, and its bases: annotations may use their names."""
    home, _, _ = getattr(source, "__qualname__", "").rpartition(".")
    bound_to = getattr(function, "__self__", None)
    if inspect.ismethod(function):
        cls = bound_to if inspect.isclass(bound_to) else type(bound_to)
        for base in cls.__mro__:
            if (base.__module__, base.__qualname__) == (source.__module__, home):
                return base.__mro__
    found: Any = SimpleNamespace(**getattr(source, "__globals__", {}))
    for part in home.split("."):  # only the qualified name of a static method leads to its class
        found = getattr(found, part, None)
    return found.__mro__ if inspect.isclass(found) else ()
