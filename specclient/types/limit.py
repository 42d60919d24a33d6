"""What a user may know or want of a deployment: how much it takes, and when it is given a rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from specclient.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentLimit:
    """What a deployment takes; None where only its own headers tell.

    Attributes:
        requests_per_minute, tokens_per_minute: refilled steadily; tokens are those of prompt and answer.
        concurrent: requests under way at once, a stream until its reader leaves.

    Raises:
        ConfigurationError: for a limit that is not above 0.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrent: int | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            _check_positive(f"limit {part.name}", getattr(self, part.name), none=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When a deployment that keeps failing is left alone.

    Attributes:
        failures: tries that must have failed in a row; those under way together count once.
        lasting_s: seconds for which it must have failed, so that a blip opens nothing.
        rest_s: the longest rest, in seconds; a rest is as long as the failing has lasted, up to this.

    Raises:
        ConfigurationError: for a number out of range.
    """

    failures: int = 5
    lasting_s: float = 10.0
    rest_s: float = 30.0

    def __post_init__(self) -> None:
        _check_positive("circuit failures", self.failures)
        _check_positive("circuit rest_s", self.rest_s)
        if self.lasting_s != 0:
            _check_positive("circuit lasting_s", self.lasting_s)


def _check_positive(name: str, value: object, *, none: bool = False) -> None:
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ConfigurationError(
            f"{name} is {value!r}; it must be a number above 0" + (", or None for none" if none else "")
        )
