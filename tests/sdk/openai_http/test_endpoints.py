"""Endpoints are found by their paths."""

from __future__ import annotations

import pytest

from specclient.openai_http.endpoints import endpoints_at
from specclient.resources.table.index import children_of, roots, rows_of


@pytest.mark.parametrize(
    "path",
    [
        *("/files/..", "/files/%2e%2e", "/files/..%2f..%2fx", "/vector_stores/../files/."),
        *("/organization/users", "/files/", "/files//content", "//evil.example/files"),
    ],
)
def test_traversal_empty_and_admin_paths_match_no_endpoint(path: str) -> None:
    assert endpoints_at(path) == {}


def test_every_endpoint_except_administration_is_found() -> None:
    def walk(name: str) -> list[str]:
        return [name, *(inner for child in children_of(name) for inner in walk(f"{name}.{child}"))]

    missing = [
        row.name
        for root in roots()
        for resource in walk(root)
        for row in rows_of(resource).values()
        if row.verb not in endpoints_at(row.path.partition("?")[0].replace("{", "x-").replace("}", ""))
    ]
    assert "beta.responses.create" in missing  # the server itself serves POST /responses
    missing.remove("beta.responses.create")
    assert {name.partition(".")[0] for name in missing} == {"admin"}
