"""Turn a pair and how it is to be served into the command of a server, or into why that server cannot.

What each server takes is a row of its own module, with its sources; see ``servers``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, get_args

from specclient.errors import ConfigurationError

DeploymentMethod = Literal["none", "draft", "ngram", "eagle", "eagle3", "medusa", "layer_skip", "union"]
DEPLOYMENT_METHODS: tuple[DeploymentMethod, ...] = get_args(DeploymentMethod)

_DRAFTED = ("draft", "eagle", "eagle3")
"""Methods that need a checkpoint beside the target's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is to be served.

    Attributes:
        target: folder or hub id; ``draft``: of the model, or of the heads, that draft.
        method: how it speculates; ``none`` not at all.
        depth: tokens drafted in a row.
        widths: how many guesses stand below each guess, a depth each; empty for a chain.
        context: tokens of prompt and answer together, None for the model's own.
        dtype: to compute in, None for the checkpoint's.
        tensor_parallel: devices that share each layer; ``pipeline_parallel``: that share out the layers.
        host, port: where the server listens; None for the port it has by default.
        name: the model's name in requests, None for the last part of the target.
        same_tokenizer: whether draft and target have one vocabulary; None where that is not known.
        sampling: parameters, beside temperature, top_p and top_k, that requests will have.
        format: the heads' layout: ``speculators`` where they are in that format, else empty.

    Raises:
        ConfigurationError: a value that cannot be used, with what is allowed.
    """

    target: str
    method: DeploymentMethod = "none"
    draft: str | None = None
    depth: int = 4
    widths: tuple[int, ...] = ()
    context: int | None = None
    dtype: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    host: str = "127.0.0.1"
    port: int | None = None
    name: str | None = None
    same_tokenizer: bool | None = None
    sampling: tuple[str, ...] = ()
    format: str = ""

    def __post_init__(self) -> None:
        if self.method in _DRAFTED and self.draft is None:
            what = "--draft, a smaller model" if self.method == "draft" else "--heads, a folder or hub id"
            raise ConfigurationError(
                f"method is {self.method!r}, but nothing is named that drafts; add {what}."
            )
        if self.widths and len(self.widths) != self.depth:
            raise ConfigurationError(
                f"widths are {list(self.widths)} for a depth of {self.depth}; name one width a level."
            )

    @property
    def served(self) -> str:
        """The model's name in requests."""
        return self.name or self.target.rstrip("/").rpartition("/")[2].removesuffix(".gguf")

    @property
    def tree(self) -> bool:
        """Whether more than a chain is drafted."""
        return any(width > 1 for width in self.widths)

    @property
    def nodes(self) -> int:
        """Guesses of the whole tree."""
        widths = self.widths or (1,) * self.depth
        return sum(prod(widths[: level + 1]) for level in range(len(widths)))


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a server is started.

    Attributes:
        command: the words of its command.
        before: commands that make what it reads.
        files: texts that it reads, by name.
        notes: what is worth knowing, a sentence each.
        base_url: where it will be found on this machine.
        metrics: whether its counters are at ``/metrics``, or their URL.
    """

    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    base_url: str = ""
    metrics: bool | str = True

    @property
    def script(self) -> str:
        """All of it for a POSIX shell."""
        lines = [f"# {note}" for note in self.notes]
        for name, text in self.files.items():
            lines += [f"cat > {shlex.quote(name)} <<'END'", text.rstrip("\n"), "END"]
        lines += [shlex.join(words) for words in self.before]
        return "\n".join([*lines, _folded(self.command)]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """What a server takes.

    Attributes:
        name: as ``--to`` has it; ``title``: as its makers write it.
        provider: the row of :data:`specclient.providers.PRESETS` that says what it tells of speculation.
        port: its own by default.
        methods: the name that it has for each method.
        missing: for methods that it has not, why.
        trees: methods for which it drafts more than a chain.
        one_tokenizer: why draft and target must share one; empty where they need not.
        refused: parameters of requests that it refuses beside speculation.
        pipelined: methods that it runs over a pipeline of devices; None for all.
        either: whether it splits a model by layers or within them, and not both.
        sources: where all this is written.
        launch: writes the command.
    """

    name: str
    title: str
    provider: str
    port: int
    methods: Mapping[DeploymentMethod, str]
    missing: Mapping[DeploymentMethod, str]
    trees: tuple[DeploymentMethod, ...] = ()
    one_tokenizer: str = ""
    refused: tuple[str, ...] = ()
    pipelined: tuple[DeploymentMethod, ...] | None = None
    either: bool = False
    sources: tuple[str, ...]
    launch: Callable[[Deployment, int], LaunchPlan]

    def check(self, asked: Deployment) -> None:
        """Refuse what the server cannot do.

        Raises:
            ConfigurationError: with why, and what can be done instead.
        """
        method = asked.method
        if method not in self.methods and method != "none":
            raise self._refused(f"method is {method!r}, but {self.missing[method]}", self._others())
        if asked.tree and method not in self.trees:
            able = f"; {' or '.join(self.trees)} may have widths" if self.trees else ""
            raise self._refused(
                f"widths are {list(asked.widths)}, but with {method!r} it drafts chains alone",
                f"leave --widths out{able}",
            )
        if method == "draft" and asked.same_tokenizer is False and self.one_tokenizer:
            raise self._refused(
                f"draft and target have different tokenizers, but {self.one_tokenizer}",
                "take a draft of the target's family, export to vllm, or use --method ngram",
            )
        for parameter in asked.sampling if method != "none" else ():
            if parameter in self.refused:
                raise self._refused(
                    f"requests with {parameter} are answered with 400 while it speculates",
                    f"leave {parameter} out of requests and of generation_config.json, or --method none",
                )
        if asked.pipeline_parallel > 1 and self.pipelined is not None and method not in self.pipelined:
            able = " or ".join(name for name in self.pipelined if name != "none")
            others = f"--method {able}, or " if able else ""
            raise self._refused(
                f"pipeline_parallel is {asked.pipeline_parallel}, which it does not join with {method!r}",
                f"use {others}--method none, or --tp alone",
            )

        if self.either and min(asked.tensor_parallel, asked.pipeline_parallel) > 1:
            raise self._refused(
                f"tensor_parallel is {asked.tensor_parallel} and pipeline_parallel "
                f"{asked.pipeline_parallel}, but it splits a model one way",
                "leave --tp or --pp out",
            )

    def _others(self) -> str:
        return f"choose --method {', '.join(self.methods)} or none"

    def _refused(self, why: str, instead: str) -> ConfigurationError:
        return ConfigurationError(f"{self.title}: {why}; {instead}. See {self.sources[0]}.")


def command_options(*pairs: tuple[str, object]) -> list[str]:
    """Return options as words of a command, those that are None left out."""
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def base_url_of(asked: Deployment, port: int) -> str:
    """Return where a server that listens so is found on this machine."""
    host = "127.0.0.1" if asked.host in ("0.0.0.0", "::", "") else asked.host  # noqa: S104 - read, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def parallel_degree(count: int) -> int | None:
    """Return a number of devices where it is worth naming."""
    return count if count > 1 else None


def foreign_heads(asked: Deployment, title: str) -> tuple[str, ...]:
    """Say where heads are in a format for which a server's pages show no example."""
    if asked.format != "speculators":
        return ()
    return (
        f"The heads are in the format of speculators, which {title}'s pages do not mention; where they "
        "do not load, convert them to the layout of the EAGLE authors, or export to vllm.",
    )


def _folded(words: Sequence[str]) -> str:
    """Write a command with an option a line."""
    lines: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if word.startswith("--") and lines:
            lines.append(quoted)
        elif lines:
            lines[-1] += f" {quoted}"
        else:
            lines = [quoted]
    return " \\\n  ".join(lines)
