"""Datasets of the stand-in: their blocks run in threads of this process."""

import concurrent.futures
import queue
from types import SimpleNamespace

_CONTEXT = SimpleNamespace(target_max_block_size=None, enable_progress_bars=True)


class DataContext:
    @staticmethod
    def get_current() -> SimpleNamespace:
        return _CONTEXT


class _Dataset:
    def __init__(self, rows: list, blocks: int, function: object = None) -> None:
        self._rows, self._blocks, self._function = rows, blocks, function

    def map_batches(self, function: object, batch_size: None, num_cpus: int) -> "_Dataset":
        return _Dataset(self._rows, self._blocks, function)

    def iter_rows(self) -> object:
        assert _CONTEXT.target_max_block_size == 1
        size = -(-len(self._rows) // self._blocks)
        blocks = [self._rows[at : at + size] for at in range(0, len(self._rows), size)]
        done: queue.Queue = queue.Queue()

        def run(block: list) -> None:
            for batch in self._function({key: [row[key] for row in block] for key in block[0]}):
                for values in zip(*batch.values(), strict=True):
                    done.put(dict(zip(batch, values, strict=True)))

        with concurrent.futures.ThreadPoolExecutor(len(blocks)) as pool:
            running = [pool.submit(run, block) for block in blocks]
            for _ in self._rows:
                yield done.get(timeout=60)
            for each in running:
                each.result()


def from_items(rows: list, override_num_blocks: int) -> _Dataset:
    return _Dataset(rows, override_num_blocks)
