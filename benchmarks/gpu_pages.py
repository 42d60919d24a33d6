"""A cache in pages beside a contiguous one: rounds and prompts for ``gpu_bench``, kernels for the checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from gpu_layer_checks import Figures, device_of, seconds
from gpu_measures import Row
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.model.cuda_graphs.dense_decoder import page_places
from specclient_local.model.cuda_graphs.device_ops import PassTables, TorchOps
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.static_runner import PADDING_POSITIONS
from specclient_local.model.cuda_graphs.triton_ops import TritonOps
from specclient_local.model.paged_cache import PAGE, page_count
from synthetic import runner
from torch import Tensor

if TYPE_CHECKING:
    from gpu_bench import Bench

_DEPTHS = (0, 4)


def page_rows(bench: Bench) -> Iterator[Row]:
    """Time plain rounds, rounds with drafts and a long prompt, over pages and without them, in turns."""
    plan, slots = bench.plan, max(bench.plan.batches)
    whole = page_count(plan.context + PADDING_POSITIONS)
    paged = runner(bench.config, bench.weights, slots, plan.context, pages=slots * whole)
    drafter = DraftModel(bench.pair.draft, bench.config.vocab_size)
    own = DeviceSpeculator(paged, {"draft": drafter})
    for batch in plan.batches:
        for depth in _DEPTHS:
            taken = [
                bench.decode(batch, depth, temperature=0.0, speculator=each, forget=True)["seconds_a_round"]
                for each in (bench.speculator, own, bench.speculator, own)
            ]
            contiguous, pages = min(taken[::2]), min(taken[1::2])
            row = {"batch": batch, "depth": depth, "contiguous_ms": 1e3 * contiguous}
            yield row | {"paged_ms": 1e3 * pages, "paged_over_contiguous": pages / contiguous}
    tokens = plan.context - 1
    contiguous, pages = (bench.prefill_seconds(each, tokens) for each in (bench.pair.target, paged))
    row = {"prompt": tokens, "contiguous_ms": 1e3 * contiguous, "paged_ms": 1e3 * pages}
    yield row | {"paged_over_contiguous": pages / contiguous}


def pages(tiny: bool) -> Figures:
    """Compare attention over pages with attention over neighbouring positions: bits, and microseconds."""
    heads, shared, dim = (4, 2, 16) if tiny else (32, 8, 128)
    found = Figures()
    shapes = ((1, 1, 256), (3, 5, 128)) if tiny else ((1, 1, 512), (1, 5, 8192), (16, 1, 4096), (64, 5, 1024))
    for slots, rows, length in shapes:
        case = _Case(device_of(tiny), (heads, shared, dim), (slots, rows, length))
        runs = [partial(case.attend, paged=each) for each in (False, True)]
        outputs = [run() for run in runs]
        times = [seconds(run, case.device) for run in runs]
        found[f"{slots}x{rows} over {length}"] = {
            "same bits": bool(torch.equal(*outputs)),
            "contiguous, us": 1e6 * times[0],
            "paged, us": 1e6 * times[1],
        }
    return found


class _Case:
    """Queries, and the same keys and values in both forms, with pages in a random order."""

    def __init__(self, device: str, model: tuple[int, int, int], shape: tuple[int, int, int]) -> None:
        (heads, shared, dim), (slots, rows, length) = model, shape
        self.device = device
        kind = torch.float32 if device == "cpu" else torch.bfloat16
        generator = torch.Generator(device).manual_seed(0)
        drawn: dict[str, Any] = {"device": device, "dtype": kind, "generator": generator}
        self._ops = TorchOps() if device == "cpu" else TritonOps()
        self._queries = torch.randn(slots, rows, heads, dim, **drawn)
        self._kv = torch.randn(slots, 2 * shared, length, dim, **drawn)
        width = page_count(length)
        order = torch.randperm(slots * width, device=device, generator=generator)
        self._table = order.view(slots, width).int()
        self._pages = torch.empty_like(self._kv).view(slots * width, 2 * shared, PAGE, dim)
        parts = self._kv.view(slots, 2 * shared, width, PAGE, dim).transpose(1, 2).flatten(0, 1)
        self._pages[order] = parts
        starts = torch.full((slots,), length - rows, device=device)
        layout = DensePassLayout.chain(
            torch.arange(slots, device=device), starts, rows, length, context=length, first=True
        )
        mask = torch.zeros(layout.seen().shape, device=device, dtype=kind)
        mask = mask.masked_fill_(~layout.seen(), -torch.inf)
        mask = mask[:, None].expand(-1, heads // shared, -1, -1).flatten(1, 2)[:, None]
        angles: Tensor = layout.positions
        pages, places = page_places(self._table, layout.slots, layout.places, PAGE)
        same = angles, angles, mask, mask, None
        self._tables = (
            PassTables(layout, layout.places, *same),
            PassTables(layout, places, *same, pages, self._table),
        )

    def attend(self, *, paged: bool) -> Tensor:
        """Return the outputs of attention."""
        kv = self._pages if paged else self._kv
        return self._ops.attend(self._queries, kv, self._tables[paged], sliding=False)
