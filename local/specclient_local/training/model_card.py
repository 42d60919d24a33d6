"""Turn the figures of a training run into the bundled pair's model card and licence notice."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

#: The bundled target continues Python; it was never taught to converse. A chat is therefore rendered as
#: one file: system messages as comments, everything else as it stands, and the reply continues the text.
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

Two Llama-shaped models of Python source, made so that speculative decoding can be run, tested and
measured on any machine without a download. They complete Python; they know nothing else.

| | target | draft |
|---|---|---|
| parameters | {target[parameters]:,} | {draft[parameters]:,} |
| optimizer steps | {target[steps]} of 8,192 tokens | {draft[steps]}, of 4,096 tokens |
| peak learning rate | {target[lr]} | {draft[lr]} |
| last training loss | {target[train_loss]} (cross-entropy) \
| {draft[train_loss]} (half soft, half hard labels of the target) |
| held-out cross-entropy, nats per token | {target[heldout_loss]} | {draft[heldout_loss]} |

On held-out modules, greedy, 4 drafted tokens: the first drafted token is accepted {first:.1%} of
the time, {tokens:.2f} tokens a round (192 prompts of 64 tokens, 128 new tokens each).

- **Data.** The standard library of Python {python}: {modules[train]} modules ({tokens_train:,} tokens) to
  train on, {modules[heldout]} modules ({tokens_heldout:,} tokens) held out, chosen by a hash of the module's
  name. Left out: tests, encodings tables, generated and per-machine files. No other text.
- **Licence.** The text is under the PSF licence (`LICENSE-PSF.txt`); so are the weights.
- **Tokenizer.** Byte-level BPE of 4,096 pieces, the same for both.
- **Recipe.** `make bundled-pair` (`specclient_local.training.recipe`): the target by next-token
  cross-entropy, rounded to bfloat16; then the draft by distillation from the rounded target, first on
  real text and the target's own greedy and sampled continuations, then on real text and greedy
  continuations that began with a few sampled tokens. Muon for matrices, AdamW for the rest; torch {torch}.
- **Limits.** A toy by size: it writes Python that looks right and often parses, not Python that is right.
"""


def write_card(folder: Path, figures: dict[str, Any]) -> None:
    """Write ``README.md`` and ``LICENSE-PSF.txt`` beside the checkpoints; later sections stay."""
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
