"""Rate limits and circuit rules of deployments, and limits on the size of their responses."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from specclient.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentLimit:
    """The rate limits of a deployment; a limit of None follows from the deployment's response headers only.

    Attributes:
        requests_per_minute, tokens_per_minute: refilled continuously; tokens of prompt and answer.
        concurrent: simultaneous requests; a stream counts until it is closed.

    Raises:
        ConfigurationError: a limit is not above 0.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrent: int | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            _check_positive(f"limit {part.name}", getattr(self, part.name), none=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When the circuit of a failing deployment opens, so that no requests are sent to it.

    Attributes:
        failures: the number of consecutive failed attempts; simultaneous ones count once.
        lasting_s: the least duration of the failure in seconds, so that short ones are ignored.
        rest_s: the longest time in seconds that the circuit stays open. It stays open for as long as the
            failure has lasted, up to this limit.

    Raises:
        ConfigurationError: a number is out of range.
    """

    failures: int = 5
    lasting_s: float = 10.0
    rest_s: float = 30.0

    def __post_init__(self) -> None:
        _check_positive("circuit failures", self.failures)
        _check_positive("circuit rest_s", self.rest_s)
        if self.lasting_s != 0:
            _check_positive("circuit lasting_s", self.lasting_s)


#: The compression ratio is not checked before this many decompressed bytes: short bodies of repeated text
#: compress well, and do no harm.
RATIO_FROM_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """The most of a response that the client reads. Sizes are those after decompression.

    The first two bound the memory of a call. They do not apply to bytes that the caller takes piece by piece
    (``with_streaming_response``), which the client does not keep.

    Attributes:
        max_body_bytes: of a body that is read whole, and of all the events of a stream together.
        max_event_bytes: of one event of a stream, and so of each of its lines; and of a line that a caller
            takes by ``iter_lines``.
        max_compression_ratio: decompressed bytes per received byte; checked from 16 MiB on. gzip compresses
            JSON and text to a ratio of 3 to 30, and a run of one byte to 1,030.

    Raises:
        ConfigurationError: a limit is not above 0; ``math.inf`` means no limit.
    """

    max_body_bytes: float = 512 * 2**20
    max_event_bytes: float = 64 * 2**20
    max_compression_ratio: float = 200.0

    def __post_init__(self) -> None:
        for part in fields(self):
            _check_positive(f"response limit {part.name}", getattr(self, part.name))


def _check_positive(name: str, value: object, *, none: bool = False) -> None:
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ConfigurationError(
            f"{name} is {value!r}; it must be a number above 0" + (", or None for none" if none else "")
        )
