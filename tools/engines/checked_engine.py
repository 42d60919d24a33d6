"""The description of a checked server: what is installed, how it is started, what it is known not to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: With links resolved: the scripts of an environment name its folder.
BUILD: Final = (ROOT / "build" / "engines").resolve()
TARGET: Final = ROOT / "local" / "specclient_local" / "bundled" / "target"
DRAFT: Final = ROOT / "local" / "specclient_local" / "bundled" / "draft"
#: Tokens of prompt and answer that each server is given.
CONTEXT: Final = 512


@dataclass(frozen=True)
class Start:
    """The facts that the command of a server depends on.

    Attributes:
        binaries: the ``bin`` folder of its environment.
        port: the port that it listens on.
        upstream: base URL of the server that it forwards calls to; empty for a server with models.
    """

    binaries: Path
    port: int
    upstream: str = ""


@dataclass(frozen=True)
class CheckedEngine:
    """One server.

    Attributes:
        name: its name on the command line; ``title``: its name on the page.
        package: the distribution whose version is told.
        environment: its folder under ``build/engines``; empty for the environment that runs this.
        provider: the preset of specclient that stands for it, or a name of its own.
        model: the model's name at the server.
        requirements: of pip.
        command: returns the arguments of its start.
        behind: the name of the server that it forwards calls to; empty for a server with models.
        removed: distributions that are uninstalled again.
        links: whether torch and transformers are those of the environment that runs this.
        variables: of its environment.
        speculates: whether it decodes with a draft.
        retries: of its calls; more than none where a call can meet a connection that the server closes.
        token_ids: whether ``return_token_ids`` adds the token ids to its answers.
        metrics: the prefix of its Prometheus counters at ``/metrics``; empty where it has none there.
        body: body fields of each request.
        capabilities: of a server without a preset, as its user would set them after a probe.
        without: checks that it cannot pass, with the reason, which stands on the page.
        notes: further facts for the page, a sentence each.
        after_install: is called with the environment's ``site-packages``.
    """

    name: str
    title: str
    package: str
    environment: str
    provider: str
    model: str
    requirements: tuple[str, ...]
    command: Callable[[Start], list[str]]
    behind: str = ""
    removed: tuple[str, ...] = ()
    links: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    speculates: bool = False
    retries: int = 0
    token_ids: bool = False
    metrics: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    after_install: Callable[[Path], None] | None = None
