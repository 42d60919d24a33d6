"""Advice for an engine that does not fit in memory: every option that it names is planned, and does fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from specclient_local.loading.memory_advice import PlannedEngine
from specclient_local.loading.options import EngineOptions

from specclient.errors import ConfigurationError

KIB, MIB = 2**10, 2**20


@pytest.fixture
def planned(checkpoint) -> PlannedEngine:
    """Return an engine whose caches and weights are of about the same size."""
    folder = checkpoint(hidden_size=256, intermediate_size=1024, max_position_embeddings=2048)
    return PlannedEngine(folder, [], EngineOptions(device="cpu", slots=8), 2048, lambda _: None)


def with_draft(planned: PlannedEngine) -> PlannedEngine:
    """Return the engine with a draft as large as the target."""
    options = replace(planned.options, draft=(str(planned.target),))
    return replace(planned, drafts=[planned.target], options=options)


def in_memory(planned: PlannedEngine, memory: int) -> PlannedEngine:
    return replace(planned, free=lambda _: memory)


def changed(planned: PlannedEngine, advice: str) -> PlannedEngine:
    """Return the engine with the options that a part of an advice names."""
    names = dict(re.findall(r"(dtype|quantize|draft_quantize) '(\w+)'", advice))
    slots = re.search(r"(\d+) slots?", advice)
    context = re.search(r"a context of (\d+)", advice)
    assert names or slots or context, advice
    options = replace(planned.options, **names, **({"slots": int(slots.group(1))} if slots else {}))
    return replace(planned, options=options, context=int(context.group(1)) if context else planned.context)


def total(planned: PlannedEngine) -> int:
    return sum(plan.total for plan in planned.plans().values())


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a draft"])
def test_every_advised_change_fits(planned: PlannedEngine, draft: bool) -> None:
    engine = with_draft(planned) if draft else planned
    whole, kinds = total(engine), set[str]()
    for memory in range(256 * KIB, whole, whole // 60):
        short = in_memory(engine, memory)
        with pytest.raises(ConfigurationError) as error:
            short.checked()
        advice = str(error.value).partition(" free. ")[2]
        if "in no format" in advice:
            kinds.add("none")
            continue
        together = "together" in advice
        kinds.add("together" if together else "one")
        for part in [advice] if together else advice.split(" or "):
            changed(short, part).checked()
    assert kinds == {"none", "together", "one"}


def test_all_single_changes_that_suffice_are_named(planned: PlannedEngine) -> None:
    advice = in_memory(planned, total(planned) - KIB).advice()
    assert re.fullmatch(r"They fit with a context of \d+ or 7 slots or dtype 'bfloat16'\.", advice)


def test_an_advised_context_and_slot_number_are_the_largest(planned: PlannedEngine) -> None:
    short = in_memory(planned, total(planned) * 9 // 10)
    context, slots, *_ = short.advice().split(" or ")
    for part in (context, slots):
        fits = changed(short, part)
        more = replace(fits, context=fits.context + 64) if part == context else None
        more = more or replace(fits, options=replace(fits.options, slots=fits.options.slots + 1))
        with pytest.raises(ConfigurationError):
            more.checked()


def test_where_no_format_suffices_the_least_need_is_named(planned: PlannedEngine) -> None:
    advice = in_memory(planned, KIB).advice()
    assert advice.startswith("They fit in no format: quantize 'int4', 1 slot and the shortest context need ")
    assert advice.endswith("Choose a smaller model, or free memory.")


def test_a_few_tokens_of_context_are_not_advised_if_a_format_has_room(
    planned: PlannedEngine,
) -> None:
    """With float32 and one slot there is room for two tokens only; with int8, for more than 256."""
    barely = replace(planned, options=replace(planned.options, slots=1), context=2)
    advice = in_memory(planned, total(barely) + KIB).advice()
    found = re.search(r"a context of (\d+)", advice)
    assert found is None or int(found.group(1)) >= 256


def test_an_engine_that_fits_and_one_of_unknown_memory_pass(planned: PlannedEngine, tmp_path: Path) -> None:
    planned.checked()
    in_memory(planned, total(planned)).checked()
    with pytest.raises(ConfigurationError):
        in_memory(planned, total(planned) - 1).checked()
