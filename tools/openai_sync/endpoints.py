"""The endpoints of the installed `openai` package, read by recording the request of each method.

Every method of every resource is called on a client that sends nothing, with a marker as each argument. The
place of a marker in the request (path, query, body, header, file) is the place of the argument; the type that
the response would be parsed as is the response type. The source code of the methods is not read.
"""

from __future__ import annotations

import functools
import inspect
import logging
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import openai
import typing_extensions
from openai._legacy_response import HttpxBinaryResponseContent
from openai._models import FinalRequestOptions
from openai._streaming import extract_stream_chunk_type
from openai._utils import PropertyInfo

from openai_sync.calls import CALLS
from openai_sync.names import Catalogue

Endpoint = dict[str, Any]

#: Methods with a hand-written resource class, which builds the request (``inference_methods.py``).
SHAPED = frozenset(CALLS) | {"chat.completions.parse", "responses.parse"}
_EVERY_CALL = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})
#: Arguments that are not API parameters: they control client-side work (``composite_methods.py``).
_HELPERS = frozenset({"output_type", "tool_handlers"})
_PLAIN = {type(None): "", HttpxBinaryResponseContent: "bytes", str: "str", object: "object"}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that a method would have sent.

    Attributes:
        options: the request.
        cast_to: the type of the response, or of the items of a list.
        page: the class of the pages; None if the method does not list.
        stream: whether the response is streamed.
        event: the type of each streamed event.
    """

    options: FinalRequestOptions
    cast_to: Any
    page: Any = None
    stream: bool = False
    event: Any = None


class _Seen(BaseException):
    """Carries a request out of the method that would have sent it; methods do not catch it."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent


class Witness(openai.OpenAI):
    """A client that records requests and sends none."""

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Raise :class:`_Seen` with the request of an endpoint's method."""
        event = extract_stream_chunk_type(stream_cls) if stream_cls is not None else None
        raise _Seen(Sent(options, cast_to, stream=stream, event=event))

    def _request_api_list(self, model: Any, page: Any, options: Any) -> Any:
        raise _Seen(Sent(options, model, page=page))


def endpoints(catalogue: Catalogue) -> dict[str, Endpoint]:
    """Return the endpoints of all methods that send one request, by their path on a client."""
    client = Witness(api_key="key", admin_api_key="key", base_url="http://nowhere.invalid")
    table: dict[str, Endpoint] = {}
    logging.getLogger("openai").setLevel(logging.ERROR)  # methods warn about the markers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in _methods(client):
            if name not in SHAPED:
                table[name] = _Reader(name, method, catalogue).endpoint()
    return dict(sorted(table.items()))


def _methods(client: openai.OpenAI) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(dir(type(client))):
        if isinstance(inspect.getattr_static(type(client), name), functools.cached_property):
            resource = getattr(client, name)
            if type(resource).__module__.startswith("openai.resources"):
                yield from _methods_of(resource, name)


def _methods_of(resource: Any, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods that send one request: those that ``with_raw_response`` also has."""
    raw = vars(resource.with_raw_response) if hasattr(resource, "with_raw_response") else {}
    for name in sorted(dir(type(resource))):
        static = inspect.getattr_static(type(resource), name)
        if name.startswith(("_", "with_")):
            continue
        if isinstance(static, functools.cached_property | property):
            child = getattr(resource, name)
            # A resource from another package is an alias: `beta.chat` is `chat`.
            if type(child).__module__.startswith(f"openai.resources.{path.partition('.')[0]}."):
                yield from _methods_of(child, f"{path}.{name}")
        elif inspect.isfunction(static) and name in raw:
            yield f"{path}.{name}", getattr(resource, name)


class _Reader:
    """Reads one method.

    Args:
        name: the method's path on a client.
        method: the method, bound to a resource of a :class:`Witness`.
        catalogue: the names of types.
    """

    def __init__(self, name: str, method: Callable[..., Any], catalogue: Catalogue) -> None:
        self._name = name
        self._method = method
        self._catalogue = catalogue
        written = inspect.unwrap(method)
        self._globals: dict[str, Any] = getattr(written, "__globals__", {})
        self._parameters = {
            name: parameter
            for name, parameter in inspect.signature(method).parameters.items()
            if name not in _EVERY_CALL | _HELPERS
        }

    def endpoint(self) -> Endpoint:
        """Return the method's endpoint, without empty values."""
        sent = self._sent({name: self._value(name) for name in self._parameters if name != "stream"})
        places = [name for name in self._parameters if mark(name) in sent.options.url]
        names = [name for name in self._parameters if name not in places]
        url = sent.options.url
        for name in places:
            url = url.replace(mark(name), f"{{{name}}}")
        files = [name for name in names if self._is_file(sent, name)]
        headers, in_headers = self._headers(sent, names)
        query = [name for name in names if name in sent.options.params]
        self._check_all_found(sent, names, files, in_headers)
        endpoint: Endpoint = {
            "route": f"{sent.options.method.upper()} {url}",
            "params": " ".join(name + "!" * self._is_required(name) for name in names),
            "either": self._either(),
            "returns": self._returns(sent),
            "returns_by": self._returns_by(sent),
            "page": "" if sent.page is None else _page(sent.page),
            **self._streaming(sent),
            "query": "" if sent.options.method.upper() in ("GET", "DELETE") else " ".join(query),
            "files": " ".join(files),
            "form": "with files" if files and not self._always_a_form(files) else "",
            "headers": headers,
            "in_headers": in_headers,
            "renames": self._renames(names),
            "deprecated": hasattr(self._method, "__deprecated__"),
        }
        return {name: value for name, value in endpoint.items() if value}

    def _sent(self, given: Mapping[str, Any]) -> Sent:
        try:
            self._method(**given)
        except _Seen as seen:
            return seen.sent
        raise RuntimeError(f"{self._name}() sent no request; write a resource class, and add it to SHAPED")

    def _value(self, name: str) -> Any:
        """Return an argument that can be recognized anywhere in the request."""
        annotation = str(self._parameters[name].annotation)
        if "PathLike" in repr(self._kind(name)):
            return mark(name).encode()
        many = annotation.startswith(("List[", "SequenceNotStr[", "Optional[List", "Optional[SequenceNotStr"))
        return [mark(name)] if many else mark(name)

    def _is_required(self, name: str) -> bool:
        return self._parameters[name].default is inspect.Parameter.empty

    @staticmethod
    def _is_file(sent: Sent, name: str) -> bool:
        files: Any = sent.options.files or []
        keys = files.keys() if isinstance(files, Mapping) else [key for key, *_ in files]
        return name in {key.removesuffix("[]") for key in keys}

    def _headers(self, sent: Sent, names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the fixed headers, and the headers that are set from a parameter."""
        fixed, by_name = {}, {}
        headers: Any = sent.options.headers
        for header, value in headers.items() if isinstance(headers, Mapping) else ():
            if not isinstance(value, str):
                continue
            name = next((name for name in names if mark(name) in value), None)
            if name:
                by_name[name] = header
            elif header.lower() != "content-type":
                fixed[header] = value
        return fixed, by_name

    def _check_all_found(
        self, sent: Sent, names: list[str], files: list[str], in_headers: Mapping[str, str]
    ) -> None:
        body: Any = sent.options.json_data
        held = set(body) if isinstance(body, Mapping) else set()
        seen = held | set(sent.options.params) | set(files) | set(in_headers) | {"stream"}
        if sent.options.content is None and (lost := set(names) - seen):
            raise RuntimeError(f"{self._name}() did not send {sorted(lost)}, or sent them under other names")

    def _either(self) -> list[str]:
        """Return sets of parameters; one set must be given in addition to the required parameters."""
        nonlocals = inspect.getclosurevars(self._method.__func__).nonlocals  # type: ignore[attr-defined]
        sets = []
        for variant in nonlocals.get("variants", ()):
            names = [name for name in variant if name != "stream" and not self._is_required(name)]
            if not names:
                return []
            sets.append(" ".join(names))
        return list(dict.fromkeys(sets))

    def _returns(self, sent: Sent) -> str:
        plain = _PLAIN.get(sent.cast_to) if isinstance(sent.cast_to, type) else None
        return self._catalogue.path_of(sent.cast_to) if plain is None else plain

    def _returns_by(self, sent: Sent) -> dict[str, dict[str, str]]:
        """Return the response types for the values of a parameter that change the response type."""
        types_by_value: dict[str, dict[str, str]] = {}
        for name in self._parameters:
            for word in self._words(name):
                given = {name: self._value(name) for name in self._parameters if name != "stream"} | {
                    name: word
                }
                try:
                    changed = self._sent(given)
                except (TypeError, ValueError):
                    continue  # the value conflicts with other parameters
                if changed.cast_to is not sent.cast_to:
                    types_by_value.setdefault(name, {})[word] = self._returns(changed)
        return types_by_value

    def _words(self, name: str) -> list[str]:
        kind = self._kind(name)
        return [word for word in _literals(kind) if isinstance(word, str)]

    def _kind(self, name: str) -> Any:
        annotation = self._parameters[name].annotation
        return eval(annotation, self._globals) if isinstance(annotation, str) else annotation

    def _streaming(self, sent: Sent) -> Endpoint:
        if sent.stream:
            return {"event": self._catalogue.path_of(sent.event), "streams": True}
        if "stream" not in self._parameters or sent.page is not None:
            return {}
        streamed = self._sent({name: self._value(name) for name in self._parameters} | {"stream": True})
        return {"event": self._catalogue.path_of(streamed.event)} if streamed.stream else {}

    def _always_a_form(self, files: list[str]) -> bool:
        """Return whether the body is a form even if no file is given."""
        if any(map(self._is_required, files)) or self._either():
            return True
        given = {name: self._value(name) for name in self._parameters if name not in (*files, "stream")}
        headers: Any = self._sent(given).options.headers
        return "multipart/form-data" in str(headers)

    def _renames(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Return the keys inside parameters that have another name in the request, such as `async_`."""
        renames = {name: aliases_of(self._kind(name), set()) for name in names}
        return {name: aliases for name, aliases in renames.items() if aliases}


def _page(kind: Any) -> str:
    """Return the name of a page class without its item type and the prefix of its client."""
    name: str = kind.__name__
    return name.partition("[")[0].removeprefix("Sync")


def mark(name: str) -> str:
    """Return an argument that can be recognized anywhere in a request."""
    return f"mark-of-{name}-"


def _literals(kind: Any) -> Iterator[Any]:
    if typing.get_origin(kind) is typing.Literal:
        yield from typing.get_args(kind)
    else:
        for part in typing.get_args(kind):
            yield from _literals(part)


def aliases_of(kind: Any, seen: set[Any]) -> dict[str, str]:
    """Return the keys of mappings in a type that have another name in the request, with that name."""
    aliases: dict[str, str] = {}
    if typing_extensions.is_typeddict(kind):
        if kind in seen:
            return aliases
        seen.add(kind)
        for name, part in typing_extensions.get_type_hints(kind, include_extras=True).items():
            for note in _notes(part):
                if note.alias:
                    aliases[name] = note.alias
            aliases |= aliases_of(part, seen)
        return aliases
    for part in typing.get_args(kind):
        aliases |= aliases_of(part, seen)
    return aliases


def _notes(kind: Any) -> Iterator[PropertyInfo]:
    for part in typing.get_args(kind):
        if isinstance(part, PropertyInfo):
            yield part
        elif typing.get_origin(kind) in (typing.Annotated, typing_extensions.Required):
            yield from _notes(part)
