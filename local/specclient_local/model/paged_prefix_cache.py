"""Reuse of cached prompt prefixes between requests by sharing pages, and admission of requests.

The same prefixes are shared as by :class:`~specclient_local.model.prefix_cache.PrefixCache`: whole chunks,
and equal prompts, because these have the same bits. A chunk is found by a hash of all tokens up to its end,
and outlives its request until its pages are needed. Its pages are not copied; only the last page of an equal
prompt is, if the prompt ends within it, because the answer is written behind it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.paged_cache import PAGE, PagedKVCache, page_count
from specclient_local.model.prefix_cache import PrefixCache, PrefixSharing, SlotClaim


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk of prompts that later prompts reuse.

    Attributes:
        pages: its pages.
        end: number of tokens up to its end.
        owner: whose request computed it.
    """

    pages: tuple[int, ...]
    end: int
    owner: str


@dataclass(slots=True)
class SlotPrompt:
    """The prompt of a slot's request.

    Attributes:
        tokens: the request's own growing list.
        chunks: key and end of each chunk of the prompt.
        shared: number of tokens that the same owner had computed before.
        stored: number of chunks that are stored, or need not be.
        adapter: number of the adapter that changes the rows; None for none.
        owner: whose request it is.
        alone: whether the prompt must be computed.
    """

    tokens: Sequence[int] = ()
    chunks: list[tuple[bytes, int]] = field(default_factory=list)
    shared: int = 0
    stored: int = 0
    adapter: int | None = None
    owner: str = ""
    alone: bool = False


class PagedPrefixCache:
    """Stores the chunks of prompts, and gives their pages to later prompts.

    Args:
        runner: the runner; whole multiples of its granularity are shared, and equal prompts.
        cache: the runner's cache.
        sharing: whose rows are shared; with ``none``, each prompt is read from its first token.

    Attributes:
        pool: the pages of the cache.
    """

    def __init__(self, runner: DecoderRunner, cache: PagedKVCache, sharing: PrefixSharing = "all") -> None:
        self._runner, self._cache, self.pool = runner, cache, cache.pool
        self._share, self._apart = sharing != "none", sharing == "owner"
        self._grain = runner.prefix_granularity
        if self._grain % PAGE:
            raise ValueError(f"a granularity of {self._grain} rows is no multiple of a page's {PAGE}")
        self._chunks: OrderedDict[bytes, StoredChunk] = OrderedDict()
        self._held = [SlotPrompt() for _ in self._cache.lengths]
        self.pool.unstore_all()  # what another one stored for the same runner
        self.pool.evict = self._evict

    @property
    def stored(self) -> int:
        """Number of stored chunks."""
        return len(self._chunks)

    def place(
        self,
        tokens: Sequence[int],
        prompt: int,
        free: Sequence[int],
        adapter: int | None = None,
        owner: str = "",
        *,
        claim: SlotClaim | None = None,
    ) -> int | None:
        """Take a free slot and the pages of a prompt, if all requests can still end afterwards.

        Args:
            tokens: the request's own list.
            prompt: number of tokens to prefill in chunks.
            free: free slots.
            adapter, owner: see :meth:`begin`.
            claim: the request's claim; None for one that needs no more than its prompt and a token.

        Returns:
            The slot; None if the request has to wait until others end.
        """
        claim = claim or SlotClaim(0, prompt + 1)
        slot = free[-1]
        self._store_all()
        self._bind(slot, tokens, prompt, adapter, owner, alone=claim.alone)
        self.pool.claim(slot, claim.age, page_count(max(claim.positions, prompt + 1)))
        self._reuse(slot)
        missing = page_count(prompt + 1) - len(self.pool.pages_of(slot))  # at least the last token's
        if not self.pool.safe(slot, missing):
            self._clear(slot)
            return None
        self._cache.take(slot, missing)
        self._reuse_end(slot)
        return slot

    def done(self, slot: int, tokens: Sequence[int]) -> int:
        """Return the number of positions that a request has in its slot; 0 before it begins."""
        return self._cache.lengths[slot] if self._held[slot].tokens is tokens else 0

    def begin(
        self, slot: int, tokens: Sequence[int], prompt: int, adapter: int | None = None, owner: str = ""
    ) -> int:
        """Give the slot of a prompt the pages of the longest stored prefix; called before each chunk.

        Args:
            slot: the prompt's slot.
            tokens: the request's own list; another list is another request, which begins anew.
            prompt: number of tokens to prefill in chunks.
            adapter: number of the request's adapter; rows of other adapters are not shared.
            owner: whose request it is. Rows of other owners are used only if all are shared, and are not
                counted as shared, so that no figure tells what others' prompts are.

        Returns:
            The number of positions that the slot then holds.
        """
        if self._held[slot].tokens is not tokens:
            self._bind(slot, tokens, prompt, adapter, owner)
        self._store_all()
        self._reuse(slot)
        self._reuse_end(slot)
        return self._cache.lengths[slot]

    def begin_alone(
        self, slot: int, tokens: Sequence[int], prompt: int, adapter: int | None = None, owner: str = ""
    ) -> int:
        """Do the same as :meth:`begin` for a prompt whose tokens are scored, so that none may be reused.

        Later prompts may share only whole multiples of the granularity: the rest is not computed as a chunk.
        """
        if self._held[slot].tokens is not tokens:
            self._bind(slot, tokens, prompt, adapter, owner, alone=True)
        return self._cache.lengths[slot]

    def shared(self, slot: int) -> int:
        """Return the number of prompt tokens of a slot that its owner had computed before."""
        return self._held[slot].shared

    def end(self, slot: int) -> None:
        """End a request: store what is left of its prompt, and give its pages back."""
        self._store(slot)
        self._clear(slot)

    def forget(self, slot: int) -> None:
        """End a request whose values may not be finite: none of its prompt is reused."""
        keys = [key for key, _ in self._held[slot].chunks]
        self._held[slot] = SlotPrompt()  # first, so that nothing is stored even if erasing fails
        for key in keys:
            if key in self._chunks:
                self._drop(key)
        self._cache.erase(slot)
        self._clear(slot)

    def _bind(
        self,
        slot: int,
        tokens: Sequence[int],
        prompt: int,
        adapter: int | None,
        owner: str,
        *,
        alone: bool = False,
    ) -> None:
        """Assign a slot to a request."""
        self._clear(slot)
        self._runner.use_adapter(slot, adapter)
        root = f"{adapter}/{owner if self._apart else ''}"
        chunks = list(self._keys(root, tokens, prompt)) if self._share else []
        if alone and prompt % self._grain:
            chunks = chunks[:-1]
        self._held[slot] = SlotPrompt(tokens, chunks, adapter=adapter, owner=owner, alone=alone)

    def _clear(self, slot: int) -> None:
        """Release a slot."""
        self._held[slot] = SlotPrompt()
        self._cache.truncate(slot, 0)
        self.pool.unclaim(slot)

    def _keys(self, root: str, tokens: Sequence[int], prompt: int) -> Iterator[tuple[bytes, int]]:
        """Yield key and end of each chunk of a prompt: a hash of all tokens up to the chunk's end.

        The last chunk of a prompt has another key than a whole one, because its rows are those of a smaller
        pass.
        """
        key = hashlib.sha256(root.encode()).digest()
        for begin in range(0, prompt, self._grain):
            end = min(begin + self._grain, prompt)
            key = hashlib.sha256(key + array("q", tokens[begin:end]).tobytes()).digest()
            yield key, end

    def _reuse(self, slot: int) -> None:
        """Use the stored pages of the chunks that come next, but for an unfinished last page."""
        held, cache = self._held[slot], self._cache
        if held.alone:
            return
        for key, end in held.chunks:
            if end <= cache.lengths[slot]:
                continue
            chunk, start = self._chunks.get(key), cache.lengths[slot]
            if chunk is None or start % self._grain or end % PAGE:
                break
            self._hold(slot, start // PAGE, chunk.pages)
            self._count(slot, chunk, start, end)
        self._touch(slot)

    def _reuse_end(self, slot: int) -> None:
        """Reuse the last chunk of an equal prompt, which ends within a page: the page is copied."""
        held, cache = self._held[slot], self._cache
        start = cache.lengths[slot]
        if held.alone or not held.chunks or start % self._grain or start == held.chunks[-1][1]:
            return
        key, end = held.chunks[-1]
        if end - start > self._grain or not end % PAGE or key not in self._chunks:
            return
        cache.prepare([(slot, end)])
        chunk = self._chunks.get(key)
        if chunk is None:  # its pages were taken
            return
        *whole, last = chunk.pages
        self._hold(slot, start // PAGE, whole)
        cache.copy_page(last, self.pool.pages_of(slot)[end // PAGE])
        self._count(slot, chunk, start, end)
        self._touch(slot)

    def _hold(self, slot: int, first: int, pages: Sequence[int]) -> None:
        """Let a slot hold stored pages instead of its own, from its page ``first`` on."""
        own = len(self.pool.pages_of(slot))
        for index, page in enumerate(pages, first):
            if index < own:
                self.pool.exchange(slot, index, page)
            else:
                self.pool.share(slot, [page])
        self._cache.refresh(slot)

    def _count(self, slot: int, chunk: StoredChunk, start: int, end: int) -> None:
        """Count a reused chunk."""
        held = self._held[slot]
        self._cache.lengths[slot] = end
        held.shared += end - start if chunk.owner == held.owner else 0
        held.stored = sum(1 for _, each in held.chunks if each <= end)

    def _store_all(self) -> None:
        """Store the chunks that slots have computed since the last call."""
        for slot in range(len(self._held)):
            self._store(slot)

    def _store(self, slot: int) -> None:
        """Store the chunks of a slot's prompt that are computed and not stored yet."""
        held, cache = self._held[slot], self._cache
        done = min(cache.lengths[slot], cache.moved[slot])
        while held.stored < len(held.chunks) and held.chunks[held.stored][1] <= done:
            key, end = held.chunks[held.stored]
            begin = 0 if not held.stored else held.chunks[held.stored - 1][1]
            held.stored += 1
            pages = tuple(self.pool.pages_of(slot)[begin // PAGE : page_count(end)])
            # Another request may have computed the same chunk meanwhile; a borrowed page belongs to no slot.
            if key not in self._chunks and len(pages) == page_count(end) - begin // PAGE:
                self._chunks[key] = StoredChunk(pages, end, held.owner)
                for page in pages:
                    self.pool.store(page)

    def _touch(self, slot: int) -> None:
        """Mark the stored chunks of a slot's prompt as used, the last one first: it is evicted first."""
        for key, _ in reversed(self._held[slot].chunks):
            if key in self._chunks:
                self._chunks.move_to_end(key)

    def _evict(self) -> None:
        """Drop the least recently used chunk that frees a page."""
        for key, chunk in self._chunks.items():
            if any(map(self.pool.is_idle, chunk.pages)):
                self._drop(key)
                return

    def _drop(self, key: bytes) -> None:
        """Forget a stored chunk."""
        for page in self._chunks.pop(key).pages:
            self.pool.unstore(page)


def prefix_cache_for(runner: ModelRunner, sharing: PrefixSharing) -> PrefixCache | PagedPrefixCache:
    """Return what assigns the slots of a runner, and shares prefixes between them."""
    if isinstance(runner, DecoderRunner) and isinstance(runner.cache, PagedKVCache):
        return PagedPrefixCache(runner, runner.cache, sharing)
    return PrefixCache(runner, sharing)
