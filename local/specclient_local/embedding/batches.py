"""Batches of texts: sorted by length, so that little is padded, and bounded in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Parameters × tokens of a batch on a CPU: about a second of one core, after which others may go on, and a
#: cancelled request ends.
_CPU_WORK = 2**34
#: Tokens of a batch, with padding: on a CPU fewer make the matrix products slow, and more save no time.
_CPU_TOKENS = (512, 8192)
_DEVICE_TOKENS = 32_768


def batch_tokens(parameters: int, *, on_cpu: bool) -> int:
    """Return the most tokens of a batch, with padding; a longer text is a batch by itself.

    Args:
        parameters: of the model.
        on_cpu: whether a CPU runs it.
    """
    if not on_cpu:
        return _DEVICE_TOKENS
    least, most = _CPU_TOKENS
    return min(max(_CPU_WORK // max(parameters, 1), least), most)


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the indices of each batch's texts, the longest texts first.

    Args:
        lengths: tokens of each text.
        tokens: the most tokens of a batch, counted as texts × longest text.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
