"""The configured models that a server of their own serves, by ``engine`` or ``command`` in their table."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.export.pair_deployment import unbundled
from specclient_local.loading.configured_models import SERVER_KEYS, ConfiguredModel

DEFAULT_KEEP_ALIVE_S, DEFAULT_START_S = 600.0, 1200.0
OWN = "own"


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of server.

    Attributes:
        title: its name in messages.
        provider: the preset whose dialect and capabilities it has; empty for OpenAI's API alone.
        planned: whether its start command is that of ``specclient local export``; otherwise the table has a
            command.
        key_variable: the variable from which a server with a command of the user reads its key.
    """

    title: str
    provider: str
    planned: bool = False
    key_variable: str = ""


KINDS: Mapping[str, ServerKind] = {
    "vllm": ServerKind("vLLM", "vllm", planned=True, key_variable="VLLM_API_KEY"),
    "sglang": ServerKind("SGLang", "sglang", planned=True),
    "llama.cpp": ServerKind("llama.cpp", "llamacpp", planned=True, key_variable="LLAMA_API_KEY"),
    "transformers": ServerKind("transformers serve", "transformers", planned=True),
    "trtllm": ServerKind("TensorRT-LLM", "tensorrt-llm"),
    "specclient": ServerKind("specclient serve", "specclient", key_variable="SPECCLIENT_SERVER_KEY"),
    "openai": ServerKind("OpenAI-compatible", ""),
}
"""The kinds of servers, the values of ``engine`` besides ``own``."""


@dataclass(frozen=True, kw_only=True)
class ManagedModel:
    """A model that a server of its own serves.

    Attributes:
        name: the model's name in the configuration.
        engine: the kind of its server, one of :data:`KINDS`.
        pair: target, drafts and options of the table.
        python: the interpreter of the environment that the server is installed in; None to find its program
            on ``PATH``.
        command: the whole start command; empty for a planned one.
        arguments: words that are added to a planned command.
        env: variables of the server's environment.
        keep_alive: seconds without a call after which it is stopped; 0 for never.
        start_s: seconds that its start may take.
        served_name: the model's name in requests; empty for the planned one, or the only one.
    """

    name: str
    engine: str
    pair: ConfiguredModel
    python: str | None = None
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    keep_alive: float = DEFAULT_KEEP_ALIVE_S
    start_s: float = DEFAULT_START_S
    served_name: str = ""

    @property
    def kind(self) -> ServerKind:
        """The kind of its server."""
        return KINDS[self.engine]

    @property
    def template(self) -> str | None:
        """The folder or hub id whose chat template it uses; None for a file of weights."""
        return None if self.pair.path.endswith(".gguf") else self.pair.path

    @property
    def speculates(self) -> bool:
        """Whether the planned command drafts."""
        options = self.pair.options
        return not self.command and options.method != "plain" and bool(options.draft or options.heads)

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """The request parameters that the server does not accept, by the facts of its export."""
        from specclient_local.export import SERVERS  # noqa: PLC0415 - used by calls only

        row = SERVERS.get(self.engine)
        drafts = self.speculates or (not self.command and self.pair.options.method == "ngram")
        return row.refused if row is not None and drafts else ()

    @property
    def folder_name(self) -> str:
        """The name of its folder: the same for equal models of all programs, another for a changed one."""
        options = self.pair.options
        facts = [
            *(self.engine, self.python, self.command, self.arguments, self.served_name, self.pair.path),
            *(options.draft, options.heads, options.method, options.context),
            *(self.pair.stated_dtype, self.pair.draft_defaults, sorted(self.env.items())),
        ]
        digest = hashlib.sha256(json.dumps([self.name, *facts], default=str).encode()).hexdigest()
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.name)[:40]}-{digest[:12]}"


def read_managed_models(
    settings: Mapping[str, Any], pairs: Mapping[str, ConfiguredModel]
) -> dict[str, ManagedModel]:
    """Return the models with a server of their own, by name.

    Args:
        settings: the ``local`` table; see
            :func:`specclient_local.loading.configured_models.read_configured_models`.
        pairs: the configured models, by name.

    Raises:
        ConfigurationError: a value is invalid; the message names the model, the value and what is allowed.
    """
    tables = settings.get("models") or {}
    found: dict[str, ManagedModel] = {}
    for name, pair in pairs.items():
        table = tables.get(name)
        if table is not None and (model := _managed_model(name, table, pair)) is not None:
            found[name] = model
    return found


def _managed_model(name: str, table: Mapping[str, Any], pair: ConfiguredModel) -> ManagedModel | None:
    given = {key: table[key] for key in SERVER_KEYS if table.get(key) not in (None, {})}
    command = _words(name, "command", given.get("command"))
    engine = given.get("engine", "openai" if command else OWN)
    if engine != OWN and engine not in KINDS:
        raise _error(name, "engine", engine, f"one of {', '.join((OWN, *KINDS))}")
    others = [key for key in given if key != "engine"]
    if engine == OWN:
        if others:
            raise _error(
                name, others[0], given[others[0]], "left out without engine, which is 'own'", hide=True
            )
        return None
    if sys.platform == "win32":
        raise _error(name, "engine", engine, "'own' on Windows, where servers are not started for models")
    if not command and not KINDS[engine].planned:
        raise _error(name, "engine", engine, "used with command, the start command of that server")
    for key in ("python", "arguments"):
        if command and key in given:
            raise _error(name, key, given[key], "left out with command, which is the whole command")
    return ManagedModel(
        name=name,
        engine=engine,
        pair=_with_absolute_paths(pair),
        python=_interpreter(name, given.get("python")),
        command=(_program(command[0]), *command[1:]) if command else (),
        arguments=_words(name, "arguments", given.get("arguments")),
        env=_variables(name, given.get("env", {})),
        keep_alive=_seconds(name, "keep_alive", given.get("keep_alive", DEFAULT_KEEP_ALIVE_S), least=0.0),
        start_s=_seconds(name, "start_s", given.get("start_s", DEFAULT_START_S), least=1.0),
        served_name=_text(name, "served_name", given.get("served_name", "")),
    )


def _error(name: str, key: str, value: object, allowed: str, *, hide: bool = False) -> ConfigurationError:
    shown = "given" if hide else repr(value)
    return ConfigurationError(f"local model {name!r}: {key} is {shown}; it must be {allowed}.")


def _words(name: str, key: str, value: object) -> tuple[str, ...]:
    words = [] if value is None else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise _error(name, key, type(value).__name__, 'a list of words, such as ["--port", "{port}"]')
    if key == "command" and value is not None and not (words and words[0]):
        raise _error(name, key, value, "a list that begins with a program")
    return tuple(words)


def _interpreter(name: str, value: object) -> str | None:
    if value is None:
        return None
    text = _text(name, "python", value)
    if not text:
        raise _error(name, "python", value, "the path of an interpreter, such as ~/envs/vllm/bin/python")
    return _program(text)


def _program(word: str) -> str:
    """Return a program's path, absolute if it has a folder; links of environments are kept."""
    path = Path(word).expanduser()
    return os.path.abspath(path) if "/" in word else word  # noqa: PTH100 - Path.resolve follows the link of an environment's python


def _text(name: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _error(name, key, value, "text")
    return value


def _seconds(name: str, key: str, value: object, *, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise _error(name, key, value, f"a number of seconds of at least {least:g}")
    return float(value)


def _variables(name: str, value: object) -> dict[str, str]:
    """Return environment variables; values may be ``SecretStr``, and are not quoted in errors."""
    if not isinstance(value, Mapping):
        raise _error(name, "env", type(value).__name__, "a table of variables")
    found: dict[str, str] = {}
    for variable, given in value.items():
        text = given.get_secret_value() if hasattr(given, "get_secret_value") else given
        if not isinstance(text, str) or "\0" in text or not re.fullmatch(r"[A-Za-z_]\w*", str(variable)):
            raise _error(name, f"env.{variable}", type(text).__name__, "a variable's name with a text")
        found[str(variable)] = text
    return found


def _with_absolute_paths(pair: ConfiguredModel) -> ConfiguredModel:
    """Return a pair whose local checkpoints have absolute paths: the server has another working folder.

    Raises:
        CheckpointError: a bundled checkpoint does not exist.
    """

    def absolute(name: str) -> str:
        name = unbundled(name)
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() else name

    options = replace(
        pair.options,
        draft=tuple(map(absolute, pair.options.draft)),
        heads=tuple(map(absolute, pair.options.heads)),
    )
    return replace(pair, path=absolute(pair.path), options=options)
