"""The header and the field that ask for the response cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specclient import CacheOptions
from specclient.openai_http.cache_request import cache_header
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import parse_call
from specclient.types.inference_methods import CHAT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1", CacheOptions()),
        ("true", CacheOptions()),
        ("On", CacheOptions()),
        ("0", False),
        ("false", False),
        ("60", CacheOptions(max_age_s=60)),
        ("2.5", CacheOptions(max_age_s=2.5)),
        ("max-age=60", CacheOptions(max_age_s=60)),
        ("random", CacheOptions(random=True)),
        (" max-age = 60 , Random ", CacheOptions(max_age_s=60, random=True)),
    ],
)
def test_every_form_of_the_header_is_read(text, expected):
    assert cache_header({} if text is None else {"x-specclient-cache": text}) == expected


@pytest.mark.parametrize(
    "text", ["", "yes", "-1", "nan", "max-age", "max-age=x", "60, random", "random=1", "1,2"]
)
def test_a_wrong_header_is_refused_with_its_name(text):
    with pytest.raises(ServingError, match=r"header 'x-specclient-cache' is .*; it must be 1, 0") as refused:
        cache_header({"x-specclient-cache": text})
    assert refused.value.status == 400


def parsed(field: Any = None, header: str | None = None) -> Any:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    if field is not None:
        body["specclient"] = {"cache": field}
    headers = {} if header is None else {"x-specclient-cache": header}
    request = parse_call(CHAT, json.dumps(body).encode(), headers).request
    assert "specclient" not in request.options.body
    return request.options.cache


def test_the_field_wins_over_the_header():
    assert parsed() is None
    assert parsed(True) == CacheOptions()
    assert parsed(False, "1") is False
    assert parsed(3, "random") == CacheOptions(max_age_s=3)
    assert parsed({"max_age_s": 3, "random": True}) == CacheOptions(max_age_s=3, random=True)
    assert parsed(header="random") == CacheOptions(random=True)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("1", "specclient.cache is '1'; it must be true, false"),
        ([], "specclient.cache is an array"),
        (0, "specclient.cache is 0"),
        ({"age": 1}, "specclient.cache has 'age'"),
        ({"random": "x"}, r"specclient\.cache\.random is 'x'"),
    ],
)
def test_a_wrong_field_is_refused_by_name(field, named):
    with pytest.raises(ServingError, match=named) as refused:
        parsed(field)
    assert refused.value.status == 400
