"""The option ``cache`` of a call: its values, and refusals that name the wrong one."""

from __future__ import annotations

import math

import pytest

from specclient import CacheOptions, ConfigurationError
from specclient.types.cache_options import CacheLimits


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (False, False),
        (True, CacheOptions()),
        (60, CacheOptions(max_age_s=60)),
        (0.5, CacheOptions(max_age_s=0.5)),
        ({}, CacheOptions()),
        ({"random": True}, CacheOptions(random=True)),
        ({"max_age_s": 3, "random": False}, CacheOptions(max_age_s=3, random=False)),
        (CacheOptions(max_age_s=1), CacheOptions(max_age_s=1)),
    ],
)
def test_every_form_of_the_option_is_read(given, expected):
    assert CacheOptions.of(given) == expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("yes", "cache is 'yes'; it must be True, False, a number of seconds above 0"),
        (0, "cache is 0; it must be"),
        (-1.5, "cache is -1.5"),
        (math.nan, "cache is nan"),
        ([], r"cache is \[\]"),
        ({"max_age": 3}, "cache has 'max_age'; allowed are max_age_s, random"),
        ({"max_age_s": "3"}, "cache.max_age_s is '3'; it must be a number of seconds above 0"),
        ({"max_age_s": True}, "cache.max_age_s is True"),
        ({"max_age_s": 0}, "cache.max_age_s is 0"),
        ({"random": 1}, "cache.random is 1; it must be True or False"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(given, named):
    with pytest.raises(ConfigurationError, match=named):
        CacheOptions.of(given)


def test_one_answer_may_take_an_eighth_of_the_bytes():
    assert CacheLimits(max_bytes=800).max_entry_bytes == 100
    assert CacheLimits(max_age_s=math.inf).max_age_ms == 10**12
