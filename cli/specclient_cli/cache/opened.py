"""The store of the response cache, as the commands use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specclient.errors import ConfigurationError

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.response_cache.store import AnswerStore


@contextmanager
def opened_store(settings: Settings) -> Iterator[AnswerStore]:
    """Return the configured store, which is closed at the end.

    Raises:
        ConfigurationError: the store cannot be used; the message says what to do.
    """
    from specclient.response_cache.location import answer_store  # noqa: PLC0415 - keeps --help quick
    from specclient.response_cache.store import CacheStoreError  # noqa: PLC0415

    store = answer_store(settings.cache.store, settings.cache.limits())
    try:
        yield store
    except CacheStoreError as error:
        raise ConfigurationError(str(error)) from None
    finally:
        store.close()
