"""The validated options for loading an engine: drafts, data types, devices, sizes.

This module does not import torch, so that settings are validated before heavy imports. Whether a device is
available is checked at loading.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specclient.errors import ConfigurationError
from specclient.runtime.allowed_names import allowed_names
from specclient_local.model.config import DTYPES
from specclient_local.model.prefix_cache import PrefixSharing
from specclient_local.request.params import ENGINE_METHODS, Method
from specclient_local.request.validation import ValueCheck, integer, optional, optional_list_of

QUANTIZED = ("int8", "int4", "fp8")
RUNNERS = ("auto", "own", "hf")
GRAPHS = ("auto", "on", "off")
KV_CACHES = ("contiguous", "paged")
VOCABULARIES = ("auto", "same", "shared", "retokenised")

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")
_ADAPTER_NAME = re.compile(r"[\w.-]{1,64}")

AdapterPaths = tuple[str, str | None, str | None]
"""An adapter's name, its folder for the target, and its folder for the draft."""

DEVICE_NAMES = ("auto", "cpu", "cuda", "cuda:N", "mps")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options for loading a target and its drafts; validated on construction.

    Models with equal paths and options can share one engine.

    Attributes:
        draft: folders, GGUF files or hub ids of draft models, in the order in which their proposals are
            tried; :meth:`read` accepts one, several or None.
        heads: folders or hub ids of Medusa, EAGLE and P-EAGLE heads of the target, at most one of each, in
            the format of their authors' repositories or of ``speculators``; :meth:`read` accepts one, several
            or None. ``bundled:eagle3`` and ``bundled:medusa`` belong to the bundled target. The target's own
            checkpoint stands for the MTP head that it ships, which ``method="mtp"`` loads, too.
        method: the method of requests that name none, one of
            :data:`~specclient_local.request.params.EngineMethod`; ``auto`` prefers heads, then drafts, and
            chooses ``union`` if there are several drafts.
        dtype: data type of computation: ``float32``, ``bfloat16`` or ``float16``. In float32, greedy
            speculation equals plain decoding. With compiled passes on a CPU, bfloat16 applies to the factors
            of matrix products and to keys and values, and where the processor does not multiply it, to the
            weights only; sums are float32, and greedy speculation equals plain decoding, too.
        device: ``auto`` (the first CUDA device, else the CPU), ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        quantize: stores the weights as ``int8``, ``int4`` or ``fp8``; None stores them as ``dtype``. Compiled
            passes on a CPU round the rows of a product to 8 bits as well, and keys and values to bfloat16,
            for ``int8`` and ``int4``. Answers are exactly those of the quantised target.
        draft_dtype, draft_device, draft_quantize: the same for the draft. Type and device default to the
            target's.
        runner: ``own`` (the engine's decoder), ``hf`` (any decoder-only model of transformers,
            slower), or ``auto`` (``own`` if it supports the model).
        slots: the number of requests that run at once; further requests wait.
        context: the maximum number of tokens of prompt and answer together; None is the model's, at most
            4096.
        threads: torch threads while the engine works; None is 1 below 64 M parameters, else torch's setting.
        layer_skip: the number of the target's first layers that draft, the indices of the layers that draft,
            or ``search``, which searches for suitable layers while requests run.
        draft_vocabulary: how to use a draft whose vocabulary differs from the target's. ``shared`` restricts
            it to the common tokens, ``retokenised`` converts its greedy text to the target's tokens, ``auto``
            chooses and logs a warning, ``same`` refuses the draft. Answers are exact in each case.
        prefix_cache: whether a request reuses the KV cache of other requests, running or finished, for a
            common prefix of its prompt; ``owner`` reuses that of requests with the same API key of a server
            only, so that nobody can learn from timing what others ask. The answer is the same in each case.
        graphs: whether the own decoder's passes have static shapes, which CUDA devices record and replay as
            CUDA graphs: ``on``, ``off``, or ``auto`` (on CUDA devices only).
        launch_ahead: whether the next recorded round is launched before the results of the last one are read,
            so that the device need not wait for the host. Has no effect where passes have no static shapes.
        kv_cache: how the target's keys and values are stored: ``contiguous``, with a place for each position
            of each slot, or ``paged``, in pages of 64 positions that requests take as they grow and share for
            common prefixes. Pages need passes with static shapes (``graphs``), which ``paged`` selects.
        cache_tokens: the number of positions that the pages hold, all requests together; None is what all
            slots can use, or less if memory has no room for it. With fewer, requests wait for pages.
        adapters: LoRA adapters that requests can name; :meth:`read` accepts an object from names to the
            target's adapter folder, or to an object with ``path``, ``draft`` (the draft's adapter), or both.
        tensor_parallel: number of devices among which the target's matrices are divided, from ``device`` on,
            each with a process of its own; 1 is no division. The draft is on ``draft_device`` alone. Passes
            are not recorded.

    Raises:
        ConfigurationError: naming the value and what is allowed.
    """

    draft: tuple[str, ...] = ()
    method: Literal["auto"] | Method = "auto"
    dtype: str = "float32"
    draft_dtype: str | None = None
    device: str = "auto"
    draft_device: str | None = None
    quantize: str | None = None
    draft_quantize: str | None = None
    runner: str = "auto"
    slots: int = 4
    context: int | None = None
    threads: int | None = None
    layer_skip: int | tuple[int, ...] | Literal["search"] | None = None
    prefix_cache: bool | Literal["owner"] = True
    graphs: str = "auto"
    kv_cache: str = "contiguous"
    cache_tokens: int | None = None
    heads: tuple[str, ...] = ()
    draft_vocabulary: str = "auto"
    adapters: tuple[AdapterPaths, ...] = ()
    tensor_parallel: int = 1
    launch_ahead: bool = False

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> EngineOptions:
        """Create options from a caller's keyword arguments or a configuration file.

        Raises:
            ConfigurationError: an unknown name, or an invalid value.
        """
        known = cls.__slots__
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise ConfigurationError(
                f"{unknown[0]!r} is not an option of a model; {allowed_names(unknown[0], known)}."
            )
        layers = settings.get("layer_skip")
        layers = tuple(layers) if isinstance(layers, list) else layers
        paths = {name: _paths(name, settings.get(name)) for name in ("draft", "heads")}
        adapters = _adapters(settings.get("adapters"))
        return cls(**{**settings, **paths, "layer_skip": layers, "adapters": adapters})

    @property
    def prefix_sharing(self) -> PrefixSharing:
        """The requests whose rows a prompt may reuse."""
        return "owner" if self.prefix_cache == "owner" else "all" if self.prefix_cache else "none"

    def __post_init__(self) -> None:
        _paths("draft", self.draft)
        _paths("heads", self.heads)
        for names, allowed, usable in _CHECKS:
            for name in names:
                value = getattr(self, name)
                if not usable(value):
                    raise ConfigurationError(f"{name} is {value!r}; allowed {allowed}.")
        unused = [name for name in _DRAFT_OPTIONS if getattr(self, name) is not None and not self.draft]
        if unused:
            value = getattr(self, unused[0])
            raise ConfigurationError(
                f"{unused[0]} is {value!r}, but there is no draft; name one or leave it out."
            )
        if any(draft is not None for _, _, draft in self.adapters) and not self.draft:
            raise ConfigurationError(
                f"adapters is {self.adapters!r}, but there is no draft; name one, or leave out the draft's "
                "adapters."
            )
        if self.launch_ahead and self.graphs == "off":
            raise ConfigurationError(
                "launch_ahead is True, but graphs is 'off', and only recorded rounds can be launched ahead; "
                "leave one of them out."
            )
        self._check_division()
        self._check_pages()
        missing = None
        if self.method in ("draft", "union") and not self.draft:
            missing = "draft is None; name a draft model"
        if self.method == "layer_skip" and self.layer_skip is None:
            missing = "layer_skip is None; set the number of the target's first layers that draft"
        if self.method in ("medusa", "eagle", "peagle") and not self.heads:
            missing = "heads is None; name a folder or hub id of the target's heads"
        if missing is not None:
            raise ConfigurationError(f"method is {self.method!r}, but {missing}, or use 'plain'.")

    def head_paths(self, target: str) -> tuple[str, ...]:
        """Return the folders and hub ids of the heads to load.

        Args:
            target: folder or hub id of the target, which ships the head of the method ``mtp``.
        """
        if self.method == "plain":
            return ()
        return (*self.heads, target) if self.method == "mtp" and target not in self.heads else self.heads

    @property
    def paged(self) -> bool:
        """Whether the target's cache is in pages."""
        return self.kv_cache == "paged"

    @property
    def static_shapes(self) -> str:
        """The option ``graphs`` of the target, whose cache in pages needs static shapes."""
        return "on" if self.paged else self.graphs

    def _check_pages(self) -> None:
        """Check that nothing is set that a cache in pages cannot do."""
        if not self.paged:
            if self.cache_tokens is not None:
                raise ConfigurationError(
                    f"cache_tokens is {self.cache_tokens}, but kv_cache is {self.kv_cache!r}, whose size is "
                    "slots × context; set kv_cache to 'paged', or leave cache_tokens out."
                )
            return
        reasons = {
            "graphs is 'off', but pages need passes with static shapes": self.graphs == "off",
            "runner is 'hf', whose caches have no pages": self.runner == "hf",
            "tensor_parallel is set, but a divided target has no pages": self.tensor_parallel > 1,
            "layer_skip is set, but drafting layers read no pages": self.layer_skip is not None,
            "launch_ahead is True, but pages are taken before a round": self.launch_ahead,
        }
        reason = next((text for text, holds in reasons.items() if holds), None)
        if reason is not None:
            raise ConfigurationError(f"kv_cache is 'paged'; {reason}. Leave one of them out.")

    def _check_division(self) -> None:
        """Check that nothing is set that a divided target cannot do."""
        if self.tensor_parallel == 1:
            return
        reasons = [
            f"{name} is {value!r}, but {why}"
            for name, value, why in _UNDIVIDED
            if getattr(self, name) == value
        ]
        if self.heads or self.method == "mtp":
            reasons.append("heads are set, but a divided target keeps no hidden states for them")
        if any(target is not None for _, target, _ in self.adapters):
            reasons.append("adapters are set, but a divided target cannot have them")
        if self.layer_skip is not None:
            reasons.append("layer_skip is set, but layers of a divided target cannot draft alone")
        if self.device == "mps":
            reasons.append("device is 'mps', of which there is only one")
        if reasons:
            raise ConfigurationError(
                f"tensor_parallel is {self.tensor_parallel}; {reasons[0]}. Leave one of them out."
            )


_UNDIVIDED = (
    ("runner", "hf", "only the built-in decoder divides a model"),
    ("graphs", "on", "passes of a divided model are not recorded"),
    ("launch_ahead", True, "passes of a divided model are not recorded"),
)

_DRAFT_OPTIONS = ("draft_dtype", "draft_device", "draft_quantize")


def _paths(name: str, given: object) -> tuple[str, ...]:
    """Return one path, several or None as a tuple of strings."""
    paths = [] if given is None else given if isinstance(given, list | tuple) else [given]
    for path in paths:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ConfigurationError(f"{name} is {given!r}; it must be a folder or hub id, or several.")
    return tuple(map(str, paths))


def _adapters(given: object) -> tuple[AdapterPaths, ...]:
    """Return adapters by name as tuples."""
    if not given:
        return ()
    if isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"adapters is {given!r}; it must be an object from names to folders.")
    return tuple(_adapter(name, value) for name, value in given.items())


def _adapter(name: object, value: object) -> AdapterPaths:
    table = value if isinstance(value, Mapping) else {"path": value}
    target, draft = table.get("path"), table.get("draft")
    usable = not set(table) - {"path", "draft"} and (target is not None or draft is not None)
    if not isinstance(name, str) or not _ADAPTER_NAME.fullmatch(name) or not usable:
        raise ConfigurationError(
            f"adapters has {name!r} = {value!r}; allowed is a name of up to 64 letters, digits, dots, dashes "
            "and underscores, with a folder, or with an object of path, draft or both."
        )
    own, others = (_paths("adapters", path) for path in (target, draft))
    return name, own[0] if own else None, others[0] if others else None


def _one_of(values: Sequence[str]) -> ValueCheck:
    return lambda value: isinstance(value, str) and value in values


def is_device(value: object) -> bool:
    """Return whether a value is one of :data:`DEVICE_NAMES`."""
    return isinstance(value, str) and _DEVICE.fullmatch(value) is not None


def _layers(value: object) -> bool:
    return (
        value == "search"
        or optional(integer(1))(value)
        or (bool(value) and optional_list_of(integer(0))(value))
    )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_sharing(value: object) -> bool:
    return isinstance(value, bool) or value == "owner"


_METHODS = ("auto", *ENGINE_METHODS)


def _are(*values: str) -> str:
    return f"are {', '.join(values)}"


_CHECKS: tuple[tuple[tuple[str, ...], str, ValueCheck], ...] = (
    (("method",), _are(*_METHODS), _one_of(_METHODS)),
    (("dtype",), _are(*DTYPES), _one_of(DTYPES)),
    (("draft_dtype",), _are(*DTYPES, "None"), optional(_one_of(DTYPES))),
    (("device",), _are(*DEVICE_NAMES), is_device),
    (("draft_device",), _are(*DEVICE_NAMES, "None"), optional(is_device)),
    (("quantize", "draft_quantize"), _are(*QUANTIZED, "None"), optional(_one_of(QUANTIZED))),
    (("runner",), _are(*RUNNERS), _one_of(RUNNERS)),
    (("slots",), "is an integer of at least 1", integer(1)),
    (("context",), "is None, or an integer of at least 2", optional(integer(2))),
    (("tensor_parallel",), "is an integer of at least 1", integer(1)),
    (("threads",), "is None, or an integer of at least 1", optional(integer(1))),
    (("layer_skip",), "is a number of first layers, a list of layers, 'search', or None", _layers),
    (("draft_vocabulary",), _are(*VOCABULARIES), _one_of(VOCABULARIES)),
    (("prefix_cache",), _are("true", "false", "owner"), _is_sharing),
    (("graphs",), _are(*GRAPHS), _one_of(GRAPHS)),
    (("launch_ahead",), _are("true", "false"), _is_bool),
    (("kv_cache",), _are(*KV_CACHES), _one_of(KV_CACHES)),
    (("cache_tokens",), "is None, or an integer of at least 64", optional(integer(64))),
)
