"""Any calls in any order, with restarts and crashes among them, against a model in plain dicts."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test as run

from tests.support.histories.store_machine import StoreMachine


@pytest.mark.parametrize("name", ["memory", "json", "recorded", "delta", "remote"])
@pytest.mark.slow
def test_a_store_does_what_the_model_does_whatever_is_called(name: str) -> None:
    machine = type(f"{name.title()}Machine", (StoreMachine,), {"name": name})
    share = 4 if name in {"delta", "remote"} else 1  # opening takes a tenth of a second
    run(
        machine,
        settings=settings(
            max_examples=max(10, settings().max_examples // share), stateful_step_count=40
        ),
    )
