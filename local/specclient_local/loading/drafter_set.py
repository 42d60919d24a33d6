"""Turn loaded models into drafters by method, and into what each method's rounds cost."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.layer_skip import LayerSkipDrafter
from specclient_local.drafting.medusa import MedusaDrafter
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.retokenised import RetokenisedDrafter
from specclient_local.drafting.round_costs import RoundCosts, combined_costs
from specclient_local.drafting.shared_vocabulary import SharedVocabularyDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.drafting.vocabulary_match import ForeignDraft
from specclient_local.loading.calibration import Calibration
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.heads.checkpoint import MedusaCheckpoint, read_heads
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.heads.kernels import fast_kernels
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.medusa import native_medusa
from specclient_local.request.params import Method


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """What an engine drafts with.

    Attributes:
        by_method: the drafters; a prediction's and the look-up's are the speculator's own.
        costs: of rounds, in plain steps, by method.
        default: what a request gets that names no method.
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
    share: bool = True,
    heads: Seq[Path] = (),
    foreign: Mapping[int, ForeignDraft] | None = None,
) -> DrafterSet:
    """Build every drafter that the models allow, and measure what its rounds cost.

    Args:
        target: loaded, all slots free.
        drafts: draft models, in the order in which their guesses are tried.
        method: the default method, or ``auto``: that of the heads, else ``draft`` with one draft model,
            ``union`` with several, ``layer_skip`` where layers are named, else ``plain``.
        slots: requests that run at once.
        layer_skip: of which of the target's layers to make a draft: the first so many, these, or those that
            a search finds while requests run (``search``).
        share: whether prompts share what of their beginnings is in a draft's cache.
        heads: folders of Medusa and EAGLE heads, whose hidden states the target keeps.
        foreign: what is to be done about drafts of another vocabulary, by their place in ``drafts``.

    Raises:
        ConfigurationError: layers that the target has not, or two heads of one method.
        CheckpointError: heads that do not fit the target.
    """
    if method == "plain":
        return DrafterSet({}, {}, "plain")
    vocab = target.config.vocab_size
    calibration = Calibration(target, slots)
    by_method: dict[Method, Drafter] = {}
    costs: dict[Method, RoundCosts] = {"ngram": calibration.target, "prediction": calibration.target}
    others = foreign or {}
    models = [drafter_for_model(runner, vocab, others.get(i), share=share) for i, runner in enumerate(drafts)]
    each = [_priced(calibration.draft(runner), others.get(i)) for i, runner in enumerate(drafts)]
    if models:
        by_method["draft"], costs["draft"] = models[0], each[0]
        # It owns its drafters: their state is by slot, and a slot's request has one method.
        by_method["union"] = UnionDrafter(models, NgramDrafter())
        costs["union"] = combined_costs(each)
    if layer_skip is not None:
        if not isinstance(target, DecoderRunner):
            raise ConfigurationError(
                f"layer_skip is {layer_skip!r}, but transformers runs the target; "
                "only models of the own decoder can skip layers. Leave it out."
            )
        if isinstance(layer_skip, str):
            skips: DraftModel = LayerSkipDrafter(target)
        else:
            runner = layer_skip_runner(target, kept_layers(layer_skip, target.config.layers), slots)
            skips = DraftModel(runner, vocab, share=share)
        by_method["layer_skip"], costs["layer_skip"] = skips, calibration.draft(skips.runner)
    for folder in heads:
        own, drafter = drafter_for_heads(target, folder)
        if own in by_method:
            raise ConfigurationError(f"heads has two folders of method {own!r}; name one of each at most.")
        by_method[own], costs[own] = drafter, calibration.drafter(drafter, drafter.depth)
    return DrafterSet(by_method, costs, _default(method, by_method, len(models)))


def drafter_for_model(
    runner: ModelRunner, vocab: int, foreign: ForeignDraft | None = None, *, share: bool = True
) -> DraftModel | SharedVocabularyDrafter | RetokenisedDrafter:
    """Return what drafts with a small model.

    Args:
        runner: the small model.
        vocab: columns of the target's logits.
        foreign: what is to be done about its vocabulary; None where it is the target's.
        share: as for :func:`build_drafters`.
    """
    if foreign is None:
        return DraftModel(runner, vocab, share=share)
    own = DraftModel(runner, runner.config.vocab_size, share=share)
    if foreign.common is not None:
        return SharedVocabularyDrafter(own, foreign.common, vocab)
    return RetokenisedDrafter(own, foreign, vocab)


def _priced(cost: RoundCosts, foreign: ForeignDraft | None) -> RoundCosts:
    """Return what a draft's rounds cost for each of the target's tokens."""
    if foreign is None or foreign.way == "shared":
        return cost
    ratio = foreign.ratio
    far = None if cost.far is None else replace(cost.far, draft=cost.far.draft * ratio)
    return replace(cost, draft=cost.draft * ratio, full_draft=cost.full_draft * ratio, far=far)


def drafter_for_heads(target: ModelRunner, folder: Path) -> tuple[Method, MedusaDrafter | EagleDrafter]:
    """Return what drafts by a folder's heads, and the method it stands for.

    Raises:
        CheckpointError: see :func:`specclient_local.model.heads.checkpoint.read_heads`.
    """
    assert isinstance(target, HiddenStateRunner)  # who loads heads loads their target so
    found = read_heads(folder, target.config, target.decoder.dtype, target.device)
    if isinstance(found, MedusaCheckpoint):
        given = found.shape, found.weights, target.shared_weights()
        compiled = native_medusa(*given, target.decoder.passes)
        return found.method, MedusaDrafter(target, compiled or MedusaHeads(*given, fast_kernels()))
    return found.method, EagleDrafter(target, EagleRunner(found.shape, found.weights, target))


def layer_skip_runner(target: DecoderRunner, layers: Seq[int], slots: int) -> DecoderRunner:
    """Return a runner of some of the target's layers: the same weights, a cache of its own."""
    return DecoderRunner(target.decoder.only(layers), slots, target.context)


def kept_layers(asked: int | Seq[int], layers: int) -> tuple[int, ...]:
    """Return the layers that a draft out of the target's own keeps.

    Raises:
        ConfigurationError: none, all, or one that the target has not.
    """
    kept = tuple(range(asked)) if isinstance(asked, int) else tuple(asked)
    rising = list(kept) == sorted(set(kept))
    if not kept or not rising or kept[0] < 0 or kept[-1] >= layers or len(kept) >= layers:
        raise ConfigurationError(
            f"layer_skip is {asked!r}; allowed is how many of the target's first layers draft, 1 to "
            f"{layers - 1}, or which of its layers 0 to {layers - 1} do, in order and not all."
        )
    return kept


def _default(method: str, by_method: dict[Method, Drafter], models: int) -> Method:
    if method == "auto":
        if "eagle" in by_method or "medusa" in by_method:
            return "eagle" if "eagle" in by_method else "medusa"
        if models:
            return "union" if models > 1 else "draft"
        return "layer_skip" if "layer_skip" in by_method else "plain"
    if method == "ngram":
        return "ngram"
    found = next((name for name in by_method if name == method), None)
    if found is None:
        raise ConfigurationError(
            f"method is {method!r}, but heads has none of that kind; there are {', '.join(by_method)}."
        )
    return found
