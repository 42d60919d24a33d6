"""Settings and progress of heads training, and the shape of the EAGLE heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specclient.errors import ConfigurationError
from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_weights import EagleShape
from specclient_local.model.rope_config import Rope
from specclient_local.training.heads.dataset import CollectionSettings

HeadsKind = Literal["medusa", "eagle", "eagle3", "peagle"]
KINDS: tuple[HeadsKind, ...] = ("medusa", "eagle", "eagle3", "peagle")

_RATES: dict[HeadsKind, float] = {"medusa": 2e-2, "eagle": 3e-3, "eagle3": 3e-3, "peagle": 3e-3}
"""Default peak learning rates. Medusa's is higher: its blocks start at zero."""

_ROWS: dict[HeadsKind, int] = {"medusa": 32, "eagle": 16, "eagle3": 16, "peagle": 8}
"""Default rows per pass."""

_DEPTHS: dict[HeadsKind, int] = {"medusa": 6, "eagle": 4, "eagle3": 4, "peagle": 6}
"""Default depths. A further depth of an EAGLE head costs a further pass; one of the others does not."""

_ONLY_OF: dict[str, tuple[HeadsKind, ...]] = {
    "layers": ("peagle",),
    "start": ("peagle",),
    "blocks": ("medusa",),
    "taps": ("eagle3", "peagle"),
}
"""Settings that the other kinds do not have."""


@dataclass(frozen=True, slots=True)
class HeadsRecipe:
    """The settings of a training run.

    Attributes:
        kind: the kind of heads.
        steps: optimizer steps; the default takes a quarter of an hour on the bundled target and one core.
        batch: rows per pass; None for the kind's default.
        accumulate: passes per step.
        lr: peak learning rate; None for the kind's default.
        depth: number of Medusa heads, of drafted tokens over which an EAGLE head is unrolled, or of tokens
            that a P-EAGLE head drafts; None for the kind's default.
        layers: layers of a P-EAGLE head. Only the layers after the first one can relate a token that is not
            drafted yet to the text before it: the input of its row is the same everywhere.
        start: folder of an EAGLE-3 head with which a P-EAGLE head starts; None to start as an EAGLE-3 head.
        blocks: residual blocks per Medusa head.
        ff: feed-forward width of an EAGLE head; None for half of the target's.
        draft_vocab: tokens in an EAGLE-3 head's own output head: the most frequent ones of the answers.
        taps: numbers of the target's layers after which EAGLE-3 reads hidden states; None for the embedding
            (0), the middle layer and the last layer but one. Heads that read the embedding start as induction
            heads, which copy repeated text.
        prompts: number of prompts whose answers the heads are trained on.
        heldout: number of further prompts for measurements.
        collecting: settings of the collection of answers.
        precision: data type of passes; weights stay in float32.
        seed: seed of parameters and of all random draws.
        every: steps between measurements; a checkpoint follows each.
    """

    kind: HeadsKind
    steps: int = 900
    batch: int | None = None
    accumulate: int = 1
    lr: float | None = None
    depth: int | None = None
    layers: int = 2
    start: str | None = None
    blocks: int = 1
    ff: int | None = None
    draft_vocab: int = 2048
    taps: tuple[int, ...] | None = None
    prompts: int = 3072
    heldout: int = 96
    collecting: CollectionSettings = CollectionSettings()
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    seed: int = 0
    every: int = 50

    def __post_init__(self) -> None:
        for name, kinds in _ONLY_OF.items():
            value = getattr(self, name)
            if self.kind not in kinds and value != type(self).__dataclass_fields__[name].default:
                raise ConfigurationError(
                    f"{name} is {value!r}, but only heads of kind {' or '.join(kinds)} have it, and kind is "
                    f"{self.kind!r}; leave it out, or choose another kind."
                )

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        return _RATES[self.kind] if self.lr is None else self.lr

    @property
    def depths(self) -> int:
        """Number of drafted tokens to train for: that of Medusa heads, or of an EAGLE head's depths."""
        return _DEPTHS[self.kind] if self.depth is None else self.depth

    @property
    def rows(self) -> int:
        """Rows per pass."""
        return _ROWS[self.kind] if self.batch is None else self.batch


@dataclass(frozen=True, slots=True)
class HeadsProgress:
    """The progress of a run.

    Attributes:
        stage: ``collect`` or ``train``.
        done: answered prompts, or finished steps.
        of: their total.
        loss: mean of the last 20 steps; None while collecting.
        accepted: share of rounds accepted up to each depth, on held-out greedy answers.
        left_s: estimated seconds until the end of the stage; None at its start.
    """

    stage: Literal["collect", "train"]
    done: int
    of: int
    loss: float | None = None
    accepted: tuple[float, ...] = ()
    left_s: float | None = None

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens per round of greedy speculation with a chain, including the target's own."""
        return 1.0 + sum(self.accepted)


def eagle_shape(recipe: HeadsRecipe, target: DecoderConfig, draft_vocab: int = 0) -> EagleShape:
    """Return the shape of the EAGLE head that a recipe describes.

    Its layer is like one of the target's, but with unscaled rotary embeddings and without biases.

    Args:
        recipe: the settings of the run.
        target: the target's configuration.
        draft_vocab: tokens in the head's own output head (``eagle3``).

    Raises:
        ConfigurationError: the target does not have the recipe's taps.
    """
    layer = replace(
        target,
        model_type="llama",
        layers=1,
        sliding=(False,),
        window=None,
        intermediate_size=recipe.ff or max(1, target.intermediate_size // 2),
        rope=Rope(theta=target.rope.theta),
        tied=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )
    kind: Literal["eagle", "eagle3"] = "eagle" if recipe.kind == "eagle" else "eagle3"
    chosen = recipe.taps or (0, (target.layers + 1) // 2, target.layers - 1)
    shape = EagleShape(kind, layer, target.hidden_size, chosen if kind == "eagle3" else None, draft_vocab)
    taps = shape.tapped(target.layers)
    if kind == "eagle3" and (list(taps) != sorted(set(taps)) or taps[0] < 0 or taps[-1] >= target.layers):
        raise ConfigurationError(
            f"taps are {', '.join(map(str, taps))}; they must be different layers from 0 to "
            f"{target.layers - 1} in ascending order, as the target has {target.layers} layers. Name three."
        )
    return shape if recipe.kind != "peagle" else parallel_shape(shape, recipe, target)


def parallel_shape(shape: EagleShape, recipe: HeadsRecipe, target: DecoderConfig) -> EagleShape:
    """Return the shape of a P-EAGLE head whose first layer is that of an EAGLE-3 head.

    Args:
        shape: the shape of the EAGLE-3 head.
        recipe: the settings of the run.
        target: the target's configuration. Its end token, after which no text goes on, is the mask token.
    """
    config = replace(shape.config, layers=recipe.layers, sliding=(False,) * recipe.layers)
    return replace(shape, config=config, mask_token=min(target.eos, default=0), block=recipe.depths)
