"""Deployments of a pair of models, the start commands of servers, and the limits of each server.

Each server is a :class:`ServerSpec` in its own module, with its sources; see ``server_registry``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, get_args

from specclient.errors import ConfigurationError

DeploymentMethod = Literal[
    "none", "draft", "ngram", "eagle", "eagle3", "peagle", "medusa", "layer_skip", "union"
]
DEPLOYMENT_METHODS: tuple[DeploymentMethod, ...] = get_args(DeploymentMethod)

_DRAFTED = ("draft", "eagle", "eagle3", "peagle")
"""Methods that need a second checkpoint besides the target's."""

_SAMPLING = (
    *("bad_words", "frequency_penalty", "length_penalty", "logit_bias", "logprobs", "max_tokens", "min_p"),
    *(
        "min_tokens",
        "n",
        "presence_penalty",
        "prompt_logprobs",
        "repetition_penalty",
        "response_format",
        "seed",
    ),
    *("stop", "stop_token_ids", "temperature", "top_k", "top_logprobs", "top_p", "typical_p"),
)
"""Request parameters that decide how tokens are sampled, by OpenAI's and vLLM's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A pair of models and the options with which a server runs it.

    Attributes:
        target: folder or hub id of the target.
        method: the speculation method; ``none`` for plain decoding.
        draft: folder or hub id of the draft model or of the heads.
        depth: draft length: the number of levels of the draft tree.
        widths: number of children of each node, by level of the draft tree; empty for a chain.
        context: maximum tokens of prompt and answer together; None for the model's maximum.
        dtype: data type of computation; None for the checkpoint's.
        tensor_parallel: number of devices over which each layer is split.
        pipeline_parallel: number of devices over which the layers are distributed.
        host: address that the server listens on.
        port: port that the server listens on; None for its default.
        name: the model's name in requests; None for the last part of the target.
        same_tokenizer: whether draft and target have the same vocabulary; None if unknown.
        sampling: parameters that requests will use, besides temperature, top_p and top_k.
        format: format of the heads: ``speculators``, or empty for that of their authors.

    Raises:
        ConfigurationError: a draft is missing, a sampling parameter is unknown, or the number of widths is
            not the depth.
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
            lacks = "is no draft; add --draft, a smaller model"
            if self.method != "draft":
                lacks = "are no heads; add --heads, a folder or hub id"
            raise ConfigurationError(f"method is {self.method!r}, but there {lacks}.")
        if unknown := next((name for name in self.sampling if name not in _SAMPLING), None):
            raise ConfigurationError(
                f"the sampling parameter {unknown[:80]!r} is unknown; known are {', '.join(_SAMPLING)}."
            )
        if self.widths and len(self.widths) != self.depth:
            raise ConfigurationError(
                f"widths are {list(self.widths)}, but the depth is {self.depth}; give one width per level."
            )

    @property
    def served(self) -> str:
        """The model's name in requests."""
        return self.name or self.target.rstrip("/").rpartition("/")[2].removesuffix(".gguf")

    @property
    def tree(self) -> bool:
        """Whether the drafts are trees with more than one branch."""
        return any(width > 1 for width in self.widths)

    @property
    def nodes(self) -> int:
        """Number of drafted tokens in the whole tree."""
        widths = self.widths or (1,) * self.depth
        return sum(prod(widths[: level + 1]) for level in range(len(widths)))


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The commands and files that start a server.

    Attributes:
        command: the words of the start command.
        before: commands to run first, which create the files that the server reads.
        files: texts of further files that the server reads, by name.
        notes: notes for the user, one sentence each.
        base_url: base URL of the server on this machine.
        metrics: URL of the server's counters; True if they are at ``/metrics``, False if there are none.
        model: the model's name in requests; empty for :attr:`Deployment.served`.
    """

    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    base_url: str = ""
    metrics: bool | str = True
    model: str = ""

    @property
    def script(self) -> str:
        """All files and commands as a POSIX shell script."""
        lines = [f"# {note}" for note in self.notes]
        for name, text in self.files.items():
            lines += [f"cat > {shlex.quote(name)} <<'END'", text.rstrip("\n"), "END"]
        lines += [shlex.join(words) for words in self.before]
        return "\n".join([*lines, _folded(self.command)]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    """The program of an installed server: its options, its version and its key.

    Attributes:
        help: commands that print its options; the first one that succeeds is used.
        version: the command that prints its version.
        optional: options without which it gives the same answers; they are left out if it lacks them.
        key_variable: the environment variable of the API key that it requires; empty if there is none.
        key_option: its option for that key, for a server without a variable; empty if there is none. Other
            users of the machine can read a command line.
    """

    help: tuple[tuple[str, ...], ...]
    version: tuple[str, ...]
    optional: tuple[str, ...] = ()
    key_variable: str = ""
    key_option: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The capabilities of a server, and the function that plans its start.

    Attributes:
        name: its name as a value of ``--to``.
        title: its name in messages.
        provider: name of its row in :data:`specclient.providers.PRESETS`.
        port: its default port.
        methods: the server's name of each supported method.
        missing: the reason why a method is not supported, by method. A method that only this package's engine
            has needs no entry.
        trees: methods that can draft trees; the others draft chains only.
        one_tokenizer: the reason why draft and target must have the same tokenizer; empty if they need not.
        refused: request parameters that the server rejects while it speculates.
        pipelined: methods that work with pipeline parallelism; None for all.
        one_split: whether the server cannot combine tensor and pipeline parallelism.
        sources: the pages that document these capabilities.
        launch: returns the launch plan of a deployment that listens on a port.
        program: how the installed program is asked for its options and given a key; None if
            ``[local.models.NAME]`` cannot start it.
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
    one_split: bool = False
    sources: tuple[str, ...]
    launch: Callable[[Deployment, int], LaunchPlan]
    program: ServerProgram | None = None

    def check(self, deployment: Deployment) -> None:
        """Check that the server supports a deployment.

        Raises:
            ConfigurationError: it does not; names the reason and an alternative.
        """
        method = deployment.method
        if method not in self.methods and method != "none":
            reason = self.missing.get(method, "only the engine of this package drafts that way")
            raise self._error(f"method is {method!r}, but {reason}", self._others())
        if deployment.tree and method not in self.trees:
            able = f"; methods with widths are {' and '.join(self.trees)}" if self.trees else ""
            raise self._error(
                f"widths are {list(deployment.widths)}, but with method {method!r} it drafts only chains",
                f"omit --widths{able}",
            )
        if method == "draft" and deployment.same_tokenizer is False and self.one_tokenizer:
            raise self._error(
                f"draft and target have different tokenizers, but {self.one_tokenizer}",
                "use a draft of the target's family, export to vllm, or use --method ngram",
            )
        for parameter in deployment.sampling if method != "none" else ():
            if parameter in self.refused:
                raise self._error(
                    f"with speculation, it answers requests with {parameter} with status 400",
                    f"remove {parameter} from requests and from generation_config.json, or use --method none",
                )
        if deployment.pipeline_parallel > 1 and self.pipelined is not None and method not in self.pipelined:
            able = " or ".join(name for name in self.pipelined if name != "none")
            others = f"--method {able}, or " if able else ""
            raise self._error(
                f"pipeline_parallel is {deployment.pipeline_parallel}, which does not work with {method!r}",
                f"use {others}--method none, or only --tp",
            )
        if self.one_split and min(deployment.tensor_parallel, deployment.pipeline_parallel) > 1:
            raise self._error(
                f"tensor_parallel is {deployment.tensor_parallel} and pipeline_parallel "
                f"{deployment.pipeline_parallel}, but it cannot combine them",
                "omit --tp or --pp",
            )

    def _others(self) -> str:
        names = f"{', '.join(self.methods)} or " if self.methods else ""
        return f"choose --method {names}none"

    def _error(self, why: str, instead: str) -> ConfigurationError:
        return ConfigurationError(f"{self.title}: {why}; {instead}. See {self.sources[0]}.")


def command_options(*pairs: tuple[str, object]) -> list[str]:
    """Return the words of command options, without options whose value is None."""
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def base_url_of(deployment: Deployment, port: int) -> str:
    """Return the base URL of a deployed server on this machine, without a path."""
    host = "127.0.0.1" if deployment.host in ("0.0.0.0", "::", "") else deployment.host  # noqa: S104 - read, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def parallel_degree(count: int) -> int | None:
    """Return a number of devices; None for one, the default of all servers."""
    return count if count > 1 else None


def foreign_heads(deployment: Deployment, title: str) -> tuple[str, ...]:
    """Return a note if the heads are in a format that the server's documentation does not mention."""
    if deployment.format != "speculators":
        return ()
    return (
        f"The heads are in the format of speculators, which {title}'s documentation does not mention. If "
        "they do not load, convert them to the format of the EAGLE authors, or export to vllm.",
    )


def _folded(words: Sequence[str]) -> str:
    """Return a command with one option per line."""
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
