"""Batches of texts: of bounded size, and of similar lengths, so that little padding is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Parameters × tokens of a batch on a CPU: about a second of one core. Other requests wait at most this long,
#: and a cancelled request ends within it.
_CPU_WORK = 2**34
#: Minimum and maximum tokens of a batch on a CPU, with padding: with fewer, matrix products are inefficient;
#: more save no time.
_CPU_TOKENS = (512, 8192)
_DEVICE_TOKENS = 32_768


def batch_tokens(parameters: int, *, on_cpu: bool) -> int:
    """Return the maximum tokens of a batch, with padding; a longer text is a batch by itself.

    Args:
        parameters: number of the model's parameters.
        on_cpu: whether the model runs on a CPU.
    """
    if not on_cpu:
        return _DEVICE_TOKENS
    least, most = _CPU_TOKENS
    return min(max(_CPU_WORK // max(parameters, 1), least), most)


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the indices of each batch's texts, the longest texts first.

    Args:
        lengths: number of tokens of each text.
        tokens: maximum tokens of a batch, counted as number of texts × length of the longest.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
