"""The description of a server, as its supervisor gets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """The start of one server.

    The placeholders ``{port}``, ``{host}`` and ``{key}`` are replaced in the words of :attr:`command` and the
    values of :attr:`env`.

    Attributes:
        folder: the server's folder; see :class:`specclient_local.managed.engine_folder.EngineFolder`.
        name: the model's name in the configuration.
        engine: the kind of server; ``title``: its display name.
        served_name: the model's name in requests; empty for the only model that the server lists.
        command: the words of the start command; the first is the path of a program.
        env: changes of the environment, by variable. They may hold keys.
        help: commands that print the program's options; the first one that succeeds is used. Without any, the
            command is used as it is.
        version: the command that prints its version; empty if there is none.
        planned: the options in ``command`` that the program must have.
        optional: the options in ``command`` that are left out if the program lacks them.
        telemetry_options: those of ``optional`` without which answers do not report speculation.
        keep_alive: seconds without a call after which the server is stopped; 0 for never.
        start_s: seconds that the start may take.
        fresh: whether earlier failures are forgotten.
    """

    folder: str
    name: str
    engine: str
    title: str
    served_name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    help: tuple[tuple[str, ...], ...] = ()
    version: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    telemetry_options: tuple[str, ...] = ()
    keep_alive: float
    start_s: float
    fresh: bool = False

    def to_json(self) -> str:
        """Return the specification as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LaunchSpec:
        """Return the specification in a JSON text that :meth:`to_json` made."""
        raw = json.loads(text)
        for name in ("command", "version", "planned", "optional", "telemetry_options"):
            raw[name] = tuple(raw[name])
        return cls(**{**raw, "help": tuple(map(tuple, raw["help"]))})


def filled(text: str, *, port: int, key: str) -> str:
    """Return a word of a command, or a variable's value, with its placeholders replaced."""
    for name, value in (("{port}", str(port)), ("{host}", "127.0.0.1"), ("{key}", key)):
        text = text.replace(name, value)
    return text
