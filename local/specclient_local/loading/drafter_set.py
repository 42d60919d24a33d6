"""The drafters of an engine, by method, and the measured costs of their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.layer_skip import LayerSkipDrafter
from specclient_local.drafting.medusa import MedusaDrafter
from specclient_local.drafting.modelless import MODELLESS_DRAFTERS, MODELLESS_ENGINE_METHODS
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.parallel_eagle import ParallelEagleDrafter
from specclient_local.drafting.retokenised import RetokenisedDrafter
from specclient_local.drafting.round_costs import RoundCosts, combined_costs
from specclient_local.drafting.shared_vocabulary import SharedVocabularyDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.drafting.vocabulary_match import ForeignDraft
from specclient_local.loading.calibration import Calibration
from specclient_local.loading.device_calibration import DeviceCalibration
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.heads.checkpoint import MedusaCheckpoint, is_mtp, read_heads
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.heads.kernels import fast_kernels
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.heads.mtp_checkpoint import read_mtp
from specclient_local.model.heads.mtp_runner import MtpRunner
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.medusa import native_medusa
from specclient_local.model.prefix_cache import PrefixSharing
from specclient_local.request.params import Method


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """The drafters of an engine.

    Attributes:
        by_method: the drafters that need a model; the speculator adds the others.
        costs: costs of rounds by method, in units of a plain step.
        default: the method of requests that name none.
    """

    by_method: dict[Method, Drafter]
    costs: dict[Method, RoundCosts]
    default: Method


def build_drafters(
    target: ModelRunner,
    drafts: Seq[ModelRunner],
    *,
    method: str,
    slots: int,
    layer_skip: int | Seq[int] | str | None = None,
    sharing: PrefixSharing = "all",
    heads: Seq[Path] = (),
    foreign: Mapping[int, ForeignDraft] | None = None,
    known: Mapping[Method, RoundCosts] | None = None,
) -> DrafterSet:
    """Create a drafter for every method that the models allow, and measure the costs of its rounds.

    Args:
        target: the loaded target, with all slots free.
        drafts: draft models, in the order in which their proposals are tried.
        method: the default method, or ``auto``: the heads' method, else ``draft`` with one draft model,
            ``union`` with several, ``layer_skip`` if ``layer_skip`` is set, else ``plain``.
        slots: number of concurrent requests.
        layer_skip: the target's layers that draft: the number of first layers, a list of layers, or
            ``search`` to search for them while requests run.
        sharing: whose keys and values draft models and heads reuse for a common prefix of prompts.
        heads: folders of Medusa, EAGLE, P-EAGLE and MTP heads; the target must keep their hidden states.
        foreign: how to use drafts with another vocabulary, by their index in ``drafts``.
        known: the costs that equal models had; they are measured if it is None.

    Raises:
        ConfigurationError: ``layer_skip`` names layers that the target does not have, or two heads have
            the same method.
        CheckpointError: heads do not fit the target.
    """
    if method == "plain":
        return DrafterSet({}, {}, "plain")
    by_method = _model_drafters(target, drafts, foreign or {}, sharing=sharing)
    if layer_skip is not None:
        by_method["layer_skip"] = _layer_drafter(target, layer_skip, slots, sharing=sharing)
    by_method |= _heads_drafters(target, heads, sharing=sharing)
    default = _default(method, by_method, len(drafts))
    with target.cache.borrowed() if isinstance(target, DecoderRunner) else nullcontext():
        costs = _measured_costs(target, drafts, foreign or {}, by_method, slots) if known is None else known
    return DrafterSet(by_method, dict(costs), default)


def _measured_costs(
    target: ModelRunner,
    drafts: Seq[ModelRunner],
    foreign: Mapping[int, ForeignDraft],
    by_method: Mapping[Method, Drafter],
    slots: int,
) -> dict[Method, RoundCosts]:
    """Return the costs of the rounds of every drafter, in units of a plain step."""
    if isinstance(target, StaticRunner):
        calibration: Calibration = DeviceCalibration(target, slots)
    else:
        calibration = Calibration(target, slots)
    costs: dict[Method, RoundCosts] = dict.fromkeys(MODELLESS_DRAFTERS, calibration.target)
    if drafts:
        own = [
            _cost_per_target_token(calibration.draft(runner), foreign.get(i))
            for i, runner in enumerate(drafts)
        ]
        costs |= {"draft": own[0], "union": combined_costs(own)}
    for method, drafter in by_method.items():
        if isinstance(drafter, EagleDrafter):
            costs[method] = calibration.drafter(drafter.without_sharing(), drafter.depth)
        elif isinstance(drafter, MedusaDrafter):
            costs[method] = calibration.drafter(drafter, drafter.depth)
        elif method == "layer_skip" and isinstance(drafter, DraftModel):
            costs[method] = calibration.draft(drafter.runner)
    return costs


def _model_drafters(
    target: ModelRunner,
    drafts: Seq[ModelRunner],
    foreign: Mapping[int, ForeignDraft],
    *,
    sharing: PrefixSharing,
) -> dict[Method, Drafter]:
    """Return the drafters with draft models, if there are any: the first one alone, and all together."""
    if not drafts:
        return {}
    _check_recurrent(target, drafts)
    vocab = target.config.vocab_size
    models = [
        drafter_for_model(runner, vocab, foreign.get(i), sharing=sharing) for i, runner in enumerate(drafts)
    ]
    if target.recurrent:
        return {"draft": models[0]}
    # "draft" and "union" can share a drafter: its state is per slot, and a slot's request has one method.
    return {"draft": models[0], "union": UnionDrafter(models, NgramDrafter())}


def _check_recurrent(target: ModelRunner, drafts: Seq[ModelRunner]) -> None:
    """Raise ConfigurationError for drafts that recurrent layers do not allow."""
    for draft in drafts:
        if draft.recurrent:
            raise ConfigurationError(
                f"the draft is a {draft.config.model_type} model, which is recurrent in some layers: its "
                "state cannot go back over several passes. Choose a draft of another family."
            )
    if target.recurrent and len(drafts) > 1:
        raise ConfigurationError(
            f"draft names {len(drafts)} models, whose union is a tree, but the target is a "
            f"{target.config.model_type} model, which is recurrent in some layers and verifies chains only. "
            "Name one draft."
        )


def _layer_drafter(
    target: ModelRunner, layer_skip: int | Seq[int] | str, slots: int, *, sharing: PrefixSharing
) -> DraftModel:
    """Return the drafter with some of the target's layers; see :func:`build_drafters`."""
    if not isinstance(target, DecoderRunner):
        raise ConfigurationError(
            f"layer_skip is {layer_skip!r}, but transformers runs the target; "
            "only models that the built-in decoder runs can skip layers. Leave it out."
        )
    if target.recurrent:
        raise ConfigurationError(
            f"layer_skip is {layer_skip!r}, but the target is a {target.config.model_type} model, which is "
            "recurrent in some layers and cannot skip them. Leave it out."
        )
    if isinstance(layer_skip, str):
        return LayerSkipDrafter(target)
    runner = layer_skip_runner(target, kept_layers(layer_skip, target.config.layers), slots)
    return DraftModel(runner, target.config.vocab_size, sharing=sharing)


def _heads_drafters(
    target: ModelRunner, heads: Seq[Path], *, sharing: PrefixSharing
) -> dict[Method, Drafter]:
    """Return the drafters with heads, by method; see :func:`build_drafters`."""
    found: dict[Method, Drafter] = {}
    for folder in heads:
        method, drafter = drafter_for_heads(target, folder, sharing=sharing)
        if method in found:
            raise ConfigurationError(f"heads has two folders of method {method!r}; name at most one.")
        found[method] = drafter
    return found


def drafter_for_model(
    runner: ModelRunner, vocab: int, foreign: ForeignDraft | None = None, *, sharing: PrefixSharing = "all"
) -> DraftModel | SharedVocabularyDrafter | RetokenisedDrafter:
    """Return the drafter for a draft model.

    Args:
        runner: the draft model.
        vocab: number of columns of the target's logits.
        foreign: how to map its vocabulary to the target's; None where they are the same.
        sharing: whose keys and values it reuses for a common prefix of prompts.
    """
    if foreign is None:
        return DraftModel(runner, vocab, sharing=sharing)
    drafter = DraftModel(runner, runner.config.vocab_size, sharing=sharing)
    if foreign.common is not None:
        return SharedVocabularyDrafter(drafter, foreign.common, vocab)
    return RetokenisedDrafter(drafter, foreign, vocab)


def _cost_per_target_token(cost: RoundCosts, foreign: ForeignDraft | None) -> RoundCosts:
    """Convert a draft's costs from its own tokens to the target's, for a retokenised draft."""
    if foreign is None or foreign.way == "shared":
        return cost
    ratio = foreign.ratio
    far = None if cost.far is None else _with_draft_times(cost.far, ratio)
    return replace(_with_draft_times(cost, ratio), full_draft=cost.full_draft * ratio, far=far)


def _with_draft_times(cost: RoundCosts, ratio: float) -> RoundCosts:
    recorded = tuple(replace(each, draft=each.draft * ratio) for each in cost.recorded)
    return replace(cost, draft=cost.draft * ratio, recorded=recorded)


def drafter_for_heads(
    target: ModelRunner, folder: Path, *, sharing: PrefixSharing = "all"
) -> tuple[Method, MedusaDrafter | EagleDrafter]:
    """Return the method of the heads in a folder, and their drafter.

    Args:
        target: the model whose hidden states they read.
        folder: the heads, or the target's checkpoint for its MTP head.
        sharing: whose rows a prompt with a common prefix reuses in the caches of heads that have one.

    Raises:
        CheckpointError: see :func:`specclient_local.model.heads.checkpoint.read_heads`.
    """
    assert isinstance(target, HiddenStateRunner)  # load_model() makes one wherever heads are loaded
    on_device = isinstance(target, StaticRunner)  # heads draft in its recorded rounds, by PyTorch
    if is_mtp(folder, target.config):  # in the type of the target's matrices
        mtp = read_mtp(folder, target.config, target.weights.head.dtype, target.device)
        head = MtpRunner(mtp.shape, mtp.weights, target, compiled=not on_device)
        return mtp.method, EagleDrafter(target, head, sharing=sharing)
    checkpoint = read_heads(folder, target.config, target.decoder.dtype, target.device)
    if isinstance(checkpoint, MedusaCheckpoint):
        weights = checkpoint.shape, checkpoint.weights, target.shared_weights()
        compiled = None if on_device else native_medusa(*weights, target.decoder.passes)
        return checkpoint.method, MedusaDrafter(
            target, compiled or MedusaHeads(*weights, None if on_device else fast_kernels())
        )
    runner = EagleRunner(checkpoint.shape, checkpoint.weights, target, compiled=not on_device)
    drafter = ParallelEagleDrafter if checkpoint.shape.parallel else EagleDrafter
    return checkpoint.method, drafter(target, runner, sharing=sharing)


def layer_skip_runner(target: DecoderRunner, layers: Seq[int], slots: int) -> DecoderRunner:
    """Return a runner of some of the target's layers: shared weights, and a KV cache of its own."""
    return DecoderRunner(target.decoder.only(layers), slots, target.context)


def kept_layers(layer_skip: int | Seq[int], layers: int) -> tuple[int, ...]:
    """Return the indices of the target's layers that draft, by the option ``layer_skip``.

    Raises:
        ConfigurationError: it names no layer, all layers, or layers that the target does not have.
    """
    kept = tuple(range(layer_skip)) if isinstance(layer_skip, int) else tuple(layer_skip)
    ascending = list(kept) == sorted(set(kept))
    if not kept or not ascending or kept[0] < 0 or kept[-1] >= layers or len(kept) >= layers:
        raise ConfigurationError(
            f"layer_skip is {layer_skip!r}; allowed is a number of the target's first layers, 1 to "
            f"{layers - 1}, or a list of some of its layers 0 to {layers - 1}, ascending and not all of them."
        )
    return kept


def _default(method: str, by_method: dict[Method, Drafter], models: int) -> Method:
    if method == "auto":
        heads: tuple[Method, ...] = ("eagle", "peagle", "mtp", "medusa")
        for name in heads:
            if name in by_method:
                return name
        if models:
            return "union" if models > 1 else "draft"
        return "layer_skip" if "layer_skip" in by_method else "plain"
    methods: tuple[Method, ...] = ("plain", *MODELLESS_ENGINE_METHODS, *by_method)
    available = next((name for name in methods if name == method), None)
    if available is None:
        raise ConfigurationError(
            f"method is {method!r}, but no model or head for it is loaded; load one, or choose one of "
            f"{', '.join(methods)}."
        )
    return available
