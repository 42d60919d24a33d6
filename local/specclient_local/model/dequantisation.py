"""Quantised matrices of a checkpoint as numbers, one at a time; see :mod:`stored_format`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import label
from specclient_local.model.int4_rows import GROUP_INPUTS, int4_rows
from specclient_local.model.stored_format import StoredFormat

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, among eight, of each of the eight numbers in a word of AWQ's."""

_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of MXFP4's numbers; the highest of their four bits is the sign."""

_SCALE_BIAS = 127
"""Bias of the exponents in MXFP4's scales."""

_MARKS = {
    "gptq": ".qweight",
    "awq": ".qweight",
    "compressed-tensors": ".weight_scale",
    "fp8": ".weight_scale_inv",
    "mxfp4": "_blocks",
}
"""End of the name of a tensor that only a quantised matrix has, after the name of its module."""


_INT4 = ("gptq", "awq", "compressed-tensors")
_ZERO = 8
"""The number that stands for zero in a symmetric format."""

_MATRICES = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_MATRIX = re.compile(rf"(model\.layers\.\d+\.)({'|'.join(map(re.escape, _MATRICES))})\.weight")


@dataclass(frozen=True, slots=True)
class StoredMatrices:
    """The quantised matrices of a checkpoint.

    Attributes:
        form: how they are stored.
        has: returns whether the checkpoint has a tensor.
        get: returns a tensor as it is stored.
        where: returns the file of a tensor, for error messages.
        kept: which matrices fit rows of bytes, as far as they have been looked at.
    """

    form: StoredFormat
    has: Callable[[str], bool]
    get: Callable[[str], Tensor]
    where: Callable[[str], str]
    kept: dict[str, bool] = field(default_factory=dict)

    def numbers(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """Return a matrix in float32; None if it is not quantised.

        Args:
            name: its name in an unquantised checkpoint.
            shape: the expected shape.

        Raises:
            CheckpointError: its tensors have other types or shapes; names the first of them.
        """
        stem = name if self.form.kind == "mxfp4" else name.removesuffix(".weight")
        mark = stem + _MARKS[self.form.kind]
        if not self.has(mark):
            return None
        dequantise = {
            "gptq": self._gptq,
            "awq": self._awq,
            "compressed-tensors": self._compressed,
            "fp8": self._fp8_blocks,
            "mxfp4": self._mxfp4,
        }[self.form.kind]
        try:
            found = dequantise(stem, shape)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise self._unfit(mark, shape) from error
        if tuple(found.shape) != shape:
            raise self._unfit(mark, shape)
        return found

    def int4_rows(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """Return a matrix of a layer as rows of bytes; None if it has to be dequantised.

        A layer's matrices are all in this form or none, because some of them are joined. They are if their
        groups are whole multiples of that form's, in the order of the inputs. See
        :mod:`specclient_local.model.int4_rows`.

        Args:
            name: its name in an unquantised checkpoint.
            shape: the expected shape.

        Raises:
            CheckpointError: its tensors have other types or shapes; names the first of them.
        """
        layer = _MATRIX.fullmatch(name)
        if layer is None or self.form.bits != 4 or self.form.kind not in _INT4:
            return None
        stems, mark = [f"{layer[1]}{each}" for each in _MATRICES], _MARKS[self.form.kind]
        stem = name.removesuffix(".weight")
        try:
            if not all(self.has(each + mark) and self._fits_rows(each) for each in stems):
                return None
            numbers, scales, zeros = self._int4(stem)
            groups, rest = divmod(shape[1], GROUP_INPUTS * scales.shape[1])
            if tuple(numbers.shape) != shape or rest or zeros.shape != scales.shape:
                raise self._unfit(stem, shape)
            if not torch.equal(zeros, zeros.byte().float()):  # other zero points than any quantiser's
                raise self._unfit(stem, shape)
            return int4_rows(numbers, *(part.repeat_interleave(groups, 1) for part in (scales, zeros)))
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
            raise self._unfit(stem, shape) from error

    def _int4(self, stem: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return a matrix's numbers from 0 to 15 ``[out, in]``, and its groups' scales and zero points, each
        ``[out, groups]``.
        """
        if self.form.kind == "compressed-tensors":
            scales = self.get(f"{stem}.weight_scale")
            zeros = torch.zeros(scales.shape)
            if self.has(f"{stem}.weight_zero_point"):
                zeros = self._compressed_zeros(stem, scales, len(scales))
            return unpacked(self.get(f"{stem}.weight_packed"), 4), scales, zeros + _ZERO
        scales = self.get(f"{stem}.scales").t()
        if self.form.kind == "gptq":
            packed = self.get(f"{stem}.qweight").t().contiguous()
            zeros = unpacked(self.get(f"{stem}.qzeros"), 4) + self.form.zero_offset
            return unpacked(packed, 4), scales, zeros.t()
        numbers, zeros = (self._awq_columns(f"{stem}.{name}") for name in ("qweight", "qzeros"))
        return numbers.t(), scales, zeros.t()

    def _fits_rows(self, stem: str) -> bool:
        """Return whether a matrix's groups are such as rows of bytes can have."""
        if stem in self.kept:
            return self.kept[stem]
        fits, groups, order = True, 0, f"{stem}.g_idx"
        if self.form.kind == "compressed-tensors":
            order = f"{stem}.weight_g_idx"
            if fits := self.has(f"{stem}.weight_packed"):
                groups = self.get(f"{stem}.weight_scale").shape[-1]
                inputs = self.get(f"{stem}.weight_packed").shape[-1] * 8
        else:
            groups, rows = len(self.get(f"{stem}.scales")), self.get(f"{stem}.qweight").shape[0]
            inputs = rows * 8 if self.form.kind == "gptq" else rows
        fits = fits and groups > 0 and inputs % (GROUP_INPUTS * groups) == 0
        if fits and self.has(order):
            given = self.get(order).long()
            fits = torch.equal(given, torch.arange(inputs) // (inputs // groups)) or int(given.min()) < 0
        self.kept[stem] = fits
        return fits

    def _gptq(self, stem: str, shape: tuple[int, ...]) -> Tensor:
        """Weights ``[in, out]`` packed along the inputs, and zero points ``[groups, out]`` along the
        outputs.
        """
        bits = self.form.bits
        packed, scales = self.get(f"{stem}.qweight"), self.get(f"{stem}.scales").float()
        weights = unpacked(packed.t().contiguous(), bits).t()
        zeros = unpacked(self.get(f"{stem}.qzeros"), bits) + self.form.zero_offset
        if self.has(f"{stem}.g_idx"):
            group = self.get(f"{stem}.g_idx").long()
        else:
            group = self._groups(len(scales), shape[1])
        return ((weights - zeros[group]) * scales[group]).t()

    def _awq(self, stem: str, shape: tuple[int, ...]) -> Tensor:
        """Weights ``[in, out]`` and zero points ``[groups, out]``, both packed along the outputs."""
        scales = self.get(f"{stem}.scales").float()
        weights, zeros = (self._awq_columns(f"{stem}.{name}") for name in ("qweight", "qzeros"))
        each = shape[1] // len(scales)
        return ((weights.view(len(scales), each, -1) - zeros[:, None]) * scales[:, None]).flatten(0, 1).t()

    def _awq_columns(self, name: str) -> Tensor:
        found = unpacked(self.get(name), self.form.bits)
        ordered = torch.empty_like(found).view(len(found), -1, len(_AWQ_ORDER))
        ordered[:, :, list(_AWQ_ORDER)] = found.view(ordered.shape)
        return ordered.view(found.shape)

    def _compressed(self, stem: str, shape: tuple[int, ...]) -> Tensor:
        """Weights ``[out, in]``, packed along the inputs or not, with scales of a tensor, rows or groups."""
        bits = self.form.bits
        scales = self.get(f"{stem}.weight_scale").float()
        is_packed = self.has(f"{stem}.weight_packed")
        if is_packed:
            weights = unpacked(self.get(f"{stem}.weight_packed"), bits)[:, : shape[1]] - 2.0 ** (bits - 1)
        else:
            weights = self.get(f"{stem}.weight").float()
        if scales.numel() == 1:
            scales = scales.reshape(1, 1)
        if scales.ndim == 1:
            scales = scales[:, None]
        zeros: Tensor | float = 0.0
        if self.has(f"{stem}.weight_zero_point"):
            zeros = self._compressed_zeros(stem, scales, shape[0])
        if self.has(f"{stem}.weight_g_idx") and int(self.get(f"{stem}.weight_g_idx").min()) >= 0:
            group = self.get(f"{stem}.weight_g_idx").long()
        else:
            group = self._groups(scales.shape[1], shape[1])
        if isinstance(zeros, Tensor):
            weights = weights - zeros[:, group]
        return weights * scales[:, group]

    def _compressed_zeros(self, stem: str, scales: Tensor, outputs: int) -> Tensor:
        """Return signed zero points ``[out, groups]``, which 32-bit words hold packed along the outputs."""
        stored, bits = self.get(f"{stem}.weight_zero_point"), self.form.bits
        if stored.dtype != torch.int32 or not self.has(f"{stem}.weight_packed"):
            return stored.float().reshape(scales.shape)
        return unpacked(stored.t().contiguous(), bits).t()[:outputs] - 2.0 ** (bits - 1)

    def _fp8_blocks(self, stem: str, shape: tuple[int, ...]) -> Tensor:
        """Weights ``[out, in]`` in fp8, with a factor for each block."""
        weights, scales = self.get(f"{stem}.weight").float(), self.get(f"{stem}.weight_scale_inv").float()
        rows, columns = self.form.block
        wide = scales.repeat_interleave(rows, 0)[: shape[0]].repeat_interleave(columns, 1)[:, : shape[1]]
        return weights * wide

    def _mxfp4(self, stem: str, shape: tuple[int, ...]) -> Tensor:
        """Experts ``[E, in, out]`` as blocks ``[E, out, in / 32, 16]`` with an exponent each."""
        del shape
        blocks, exponents = self.get(f"{stem}_blocks"), self.get(f"{stem}_scales").int() - _SCALE_BIAS
        table = torch.tensor([*_FP4, *(-number for number in _FP4)])
        pairs = torch.stack((table[(blocks & 15).long()], table[(blocks >> 4).long()]), dim=-1)
        scaled: Tensor = torch.ldexp(pairs.flatten(-2), exponents[..., None])
        return scaled.flatten(-2).transpose(1, 2)

    def _groups(self, count: int, inputs: int) -> Tensor:
        """Return the group of each input, ``[inputs]``.

        Raises:
            ValueError: there are more or fewer groups than the size of a group makes.
        """
        size = self.form.group or inputs
        if count != -(-inputs // size):
            raise ValueError(f"{count} groups of {size} inputs, for {inputs}")
        return torch.arange(inputs) // size

    def _unfit(self, name: str, shape: tuple[int, ...]) -> CheckpointError:
        return CheckpointError(
            f"{self.where(name)}: the {self.form.kind} tensors of {label(name)} do not make a matrix of "
            f"{list(shape)}, which config.json requires; download it again."
        )


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Return the numbers in 32-bit words ``[N, M]``, lowest bits first: ``[N, M 32 / bits]`` float32."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    numbers: Tensor = (words.int()[:, :, None] >> shifts) & (2**bits - 1)
    return numbers.flatten(1).float()
