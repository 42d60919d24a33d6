"""URLs in messages and logs show no password and no key."""

from __future__ import annotations

import pytest

from specclient.runtime.masked_urls import mask_url, mask_url_passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://user:hunter2@host:8000/v1?key=k#f", "https://***@host:8000/v1?…"),
        ("https://hunter2@host/v1", "https://***@host/v1"),
        ("https://host/v1#hunter2", "https://host/v1#…"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("https://gateway/workers-ai/@cf/meta", "https://gateway/workers-ai/@cf/meta"),
        ("user:hunter2@host/v1", "***@host/v1"),
        ("localhost:8000/v1", "localhost:8000/v1"),
        ("", ""),
        ("/v1", "/v1"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@db/costs", "postgresql://me:***@db/costs"),
        ("postgresql://me@db/costs?sslmode=require", "postgresql://me@db/costs?sslmode=require"),
        ("postgresql://db/costs?user=me&password=hunter2", "postgresql://db/costs?user=me&password=***"),
        ("postgresql://db/costs?p%61ssword=hunter2", "postgresql://db/costs?p%61ssword=***"),
        ("postgresql://db?sslpassword=hunter2&connect_timeout=3",
         "postgresql://db?sslpassword=***&connect_timeout=3"),
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("postgresql:/me:hunter2@db/costs", "postgresql:/me:***@db/costs"),
        ("x y://me:hunter2@db", "x y://me:***@db"),
        ("postgresql://me:hunter2@a:1,b:2/costs", "postgresql://me:***@a:1,b:2/costs"),
    ],
)  # fmt: skip
def test_a_database_is_shown_without_its_password(url: str, shown: str) -> None:
    assert mask_url_passwords(url) == shown


@pytest.mark.parametrize("mark", list("/?#@:%&= +"))
@pytest.mark.parametrize("mask", [mask_url, mask_url_passwords])
def test_a_password_with_unescaped_characters_is_not_shown(mark: str, mask) -> None:
    shown = mask(f"postgresql://me:hun{mark}ter2@db/costs")
    assert "hun" not in shown
    assert "ter2" not in shown
    assert shown.endswith("@db/costs")
