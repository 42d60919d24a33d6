"""Compiles grammars in a separate process, before the engine's process does: they may crash the compiler.

The process (:mod:`specclient_local.model.grammar_worker`) is started at the first grammar that is not small,
stays, and is replaced when a grammar ends it. All engines of this process share it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import OrderedDict
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from specclient.errors import ConfigurationError
from specclient.runtime.forks import register_fork_reset
from specclient_local.model import grammar_worker
from specclient_local.model.helper_process import HelperProcess, signal_name

_LOG = logging.getLogger("specclient")

_KEPT = 1024
"""Number of results that are remembered."""

_START_S = 120.0
"""Seconds for the process to start and to prepare a vocabulary."""

_WALL_PER_CPU = 10
"""Ratio of the allowed elapsed time to the allowed processor time: a busy machine makes a compilation
wait.
"""


class GrammarVocabularyData(Protocol):
    """The data of a vocabulary that the process needs."""

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of each token, and an empty one for the end."""
        ...

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of tokens that are not text."""
        ...

    @property
    def digest(self) -> bytes:
        """Identifies the vocabulary."""
        ...


class GrammarProver:
    """Decides whether grammars can be compiled in this process. Thread-safe; one grammar at a time.

    Args:
        memory_bytes: maximum memory of the process that compiles.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._forget()
        register_fork_reset(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._process = HelperProcess(
            grammar_worker.__file__, ("llguidance",), self._memory_bytes, "tries grammars out"
        )
        self._vocabulary: bytes | None = None
        self._verdicts: OrderedDict[bytes, str | None] = OrderedDict()

    @property
    def pid(self) -> int | None:
        """The process id of the process that compiles; None while there is none."""
        return self._process.pid

    def refusal(
        self, user: object, vocabulary: GrammarVocabularyData, kind: str, text: str, seconds: float
    ) -> str | None:
        """Return the reason why a grammar may not be compiled in this process, or None if it may.

        Args:
            user: the object that needs the process. The process is kept until all users have called
                :meth:`release` or are garbage-collected.
            vocabulary: the model's vocabulary.
            kind: ``json_schema``, ``regex`` or ``grammar``.
            text: the grammar.
            seconds: maximum processor time.

        Raises:
            ConfigurationError: the process cannot be started.
        """
        parts = (
            vocabulary.digest,
            kind.encode(),
            repr(seconds).encode(),
            text.encode(errors="surrogatepass"),
        )
        key = blake2b(b"\0".join(parts), digest_size=16).digest()
        with self._lock:
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            self._users.add(user)
            reason, certain = self._try(vocabulary, kind, text, seconds)
            if certain:
                self._verdicts[key] = reason
                if len(self._verdicts) > _KEPT:
                    self._verdicts.popitem(last=False)
            return reason

    def release(self, user: object) -> None:
        """Stop the process if nobody else uses it. A later grammar starts it again."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._process.stop()

    def kill(self) -> None:
        """End the process at once, even while it compiles; a later grammar starts it again."""
        self._process.kill()

    def reset_after_fork(self) -> None:
        """Leave the process to the parent."""
        self._process.abandon()
        self._users = weakref.WeakSet()
        self._forget()

    def _try(
        self, vocabulary: GrammarVocabularyData, kind: str, text: str, seconds: float
    ) -> tuple[str | None, bool]:
        """Compile a grammar in the process.

        Returns:
            The reason why it may not be compiled here, or None; and whether another trial would have the same
            result.
        """
        reason, certain = "", False
        for _ in range(2):  # a second time, in case something else ended the process
            self._make_ready(vocabulary)
            message = {"kind": kind, "text": text, "seconds": seconds}
            answer = self._process.exchange(message, seconds * _WALL_PER_CPU)
            if answer is not None:
                failed = answer.get("failed")
                if failed is None:
                    return None, True
                return f"cannot be compiled ({failed}): make it simpler", failed == "MemoryError"
            overran, code = self._process.overran, self._process.stop()
            reason, certain = _reason(code, overran=overran, seconds=seconds, memory_bytes=self._memory_bytes)
            _LOG.warning("the process that tries grammars out ended (status %s): a grammar %s", code, reason)
            if certain:
                break
        return reason, certain

    def _make_ready(self, vocabulary: GrammarVocabularyData) -> None:
        """Start the process unless it runs, and hand it the vocabulary unless it has it."""
        if self._process.start():
            self._vocabulary = None
        if self._vocabulary == vocabulary.digest:
            return
        tokens = [piece.decode("latin-1") for piece in vocabulary.tokens]
        message = {"tokens": tokens, "special": vocabulary.special_token_ids}
        if self._process.exchange(message, _START_S) is None:
            code = self._process.stop()
            raise ConfigurationError(
                f"the process that tries grammars out ended (status {code}) while it read a vocabulary of "
                f"{len(tokens)} tokens; raise grammar_memory_bytes in [server.requests]."
            )
        self._vocabulary = vocabulary.digest


@lru_cache
def grammar_prover(memory_bytes: int) -> GrammarProver:
    """Return this process's prover with the given memory limit."""
    prover = GrammarProver(memory_bytes)
    atexit.register(prover.kill)
    return prover


def _reason(code: int | None, *, overran: bool, seconds: float, memory_bytes: int) -> tuple[str, bool]:
    """Return the reason why a grammar ended the process, and whether it would do so again.

    Args:
        code: the exit status; negative for a signal.
        overran: whether the process was ended because it took too long.
        seconds: maximum processor time of the grammar.
        memory_bytes: maximum memory of the process.
    """
    name = signal_name(code)
    if overran or name == "SIGPROF":
        return (
            f"takes more than {seconds:g} s to compile: make it simpler, or raise grammar_s in "
            "[server.requests]"
        ), True
    if name == "SIGABRT":
        return (
            f"takes more than {memory_bytes >> 20} MiB of memory to compile, or makes its compiler fail: "
            "make it simpler, or raise grammar_memory_bytes in [server.requests]"
        ), True
    certain = name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP")
    return f"makes its compiler crash ({name}): make it simpler, with fewer nested rules", certain
