"""The bundled pair's model card, generated from the figures of a training run, and its licence notice."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

#: The bundled target continues Python code and is not trained on dialogue. A chat is therefore rendered as
#: one file: system messages become comments, other messages are unchanged, and the reply continues the text.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if not loop.first %}{{ '\\n\\n' }}{% endif %}"
    "{% if message['role'] in ('system', 'developer') %}"
    "{{ '# ' ~ message['content'].replace('\\n', '\\n# ') }}"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% endfor %}"
)

_CARD = """\
# The bundled draft/target pair

Two small models of Python source code with the Llama architecture. With them, speculative decoding can be
run, tested and measured on any machine without a download. They complete Python code and nothing else.

| | target | draft |
|---|---|---|
| parameters | {target[parameters]:,} | {draft[parameters]:,} |
| optimizer steps | {target[steps]} of 8,192 tokens | {draft[steps]}, of 4,096 tokens |
| peak learning rate | {target[lr]} | {draft[lr]} |
| last training loss | {target[train_loss]} (cross-entropy) \
| {draft[train_loss]} (half soft, half hard labels of the target) |
| held-out cross-entropy, nats per token | {target[heldout_loss]} | {draft[heldout_loss]} |

On held-out modules, with greedy decoding and 4 drafted tokens per round, the first drafted token is accepted
{first:.1%} of the time, and a round yields {tokens:.2f} tokens (192 prompts of 64 tokens, 128 new tokens \
each).

- **Data.** The standard library of Python {python}: {modules[train]} modules ({tokens_train:,} tokens) for \
training and {modules[heldout]} modules
  ({tokens_heldout:,} tokens) held out, chosen by a hash of the module's name. Tests, encoding tables, \
generated files
  and per-machine files are excluded. No other text is used.
- **Licence.** The text and the weights are under the PSF licence (`LICENSE-PSF.txt`).
- **Tokenizer.** Byte-level BPE with 4,096 pieces, the same for both models.
- **Recipe.** `make bundled-pair` (`specclient_local.training.recipe`) trains the target by next-token
  cross-entropy and rounds it to bfloat16. It then trains the draft by distillation from the rounded target,
  first on real text and the target's own greedy and sampled continuations, then on real text and greedy
  continuations that begin with a few sampled tokens. Muon optimizes matrices, AdamW everything else; torch
  {torch}.
- **Limits.** The models are very small: the Python they write looks right and often parses, but is usually
  not correct.
"""


def write_card(folder: Path, figures: dict[str, Any]) -> None:
    """Write ``README.md`` and ``LICENSE-PSF.txt`` beside the checkpoints.

    Later sections of an existing README are kept.

    Args:
        folder: folder of the two checkpoints.
        figures: as returned by ``specclient_local.training.recipe.make_bundled_pair``.
    """
    greedy = figures["greedy"]
    card = _CARD.format(
        **{k: figures[k] for k in ("target", "draft", "modules", "python", "torch")},
        first=greedy["first_accepted"],
        tokens=greedy["tokens_per_round"],
        tokens_train=figures["tokens"]["train"],
        tokens_heldout=figures["tokens"]["heldout"],
    )
    path = folder / "README.md"
    _, section, rest = path.read_text(encoding="utf-8").partition("\n## ") if path.exists() else ("", "", "")
    path.write_text(card + section + rest, encoding="utf-8")
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if licence.exists():
        (folder / "LICENSE-PSF.txt").write_text(licence.read_text(encoding="utf-8"), encoding="utf-8")
