"""Measured figures in README and documentation have the command that makes them in their section."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from paths import ROOT

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: A number with a unit in which something is measured.
FIGURE: Final = re.compile(
    r"(?<![\w/.-])\d[\d.,]* ?(?:µs|ms\b|%|×|tokens/s|answers/s|requests/s|calls/s|GB/s|[kKM]i?B\b)"
)
#: A program that measures or tests, or the notes of one.
COMMAND: Final = re.compile(
    r"python benchmarks/[\w/]+\.py|python tools/\w+\.py|pytest |`?make [a-z]+|benchmarks/notes/\w+\.md|"
    r"ps -o |specclient (?:demo|local (?:bench|profile|train|plan)|route simulate)"
)
#: A link to the page that has the figure with its command.
ELSEWHERE: Final = re.compile(r"\]\((?:docs/)?(?:benchmarks|gpu|deployment)\.md")
#: Sections whose figures are settings, limits or prices, and not measured.
STATED: Final = {
    ("client.md", "Limits on responses"),
    ("deployment.md", "Faults"),
    ("costs.md", "Budgets"),
    ("costs.md", "Other units than tokens"),
    ("local.md", "Models and formats"),
    ("managed-engines.md", "Files"),
    ("routing.md", "Failover and hedging"),
    ("server.md", "Anthropic's Messages API"),
    ("server.md", "Limits of requests"),
    ("server.md", "Server"),
    ("server.md", "WebSockets"),
}


def sections(page: Path) -> list[tuple[str, str]]:
    """Return the sections of a page, with their headings; '#' in code is no heading."""
    found, heading, lines, in_code = [], "", list[str](), False
    for line in page.read_text().splitlines():
        in_code = in_code != line.lstrip().startswith("```")
        if line.startswith("#") and not in_code:
            found.append((heading, "\n".join(lines)))
            heading, lines = line.strip("# "), []
        lines.append(line)
    return [*found, (heading, "\n".join(lines))]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_section_with_measured_figures_names_their_command(page: Path) -> None:
    bare = [
        f"{heading}: {', '.join(FIGURE.findall(without_code(text))[:5])}"
        for heading, text in sections(page)
        if (page.name, heading) not in STATED
        and FIGURE.search(without_code(text))
        and not COMMAND.search(text)
        and not ELSEWHERE.search(text)
    ]
    assert not bare, "no command makes these figures; name it, or list the section in STATED"


def test_the_sections_of_stated_figures_exist() -> None:
    known = {(page.name, heading) for page in PAGES for heading, _ in sections(page)}
    assert known >= STATED


def test_a_figure_without_a_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\nIt takes 3 ms.\n\n```sh\n# no heading\npython benchmarks/client.py\n```\n")
    test_a_section_with_measured_figures_names_their_command(page)
    page.write_text("# A\n\nIt takes 3 ms.\n\n```sh\nls\n```\n")
    with pytest.raises(AssertionError):
        test_a_section_with_measured_figures_names_their_command(page)
