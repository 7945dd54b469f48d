"""The explicit model of members: no interleaving breaks a promise; each planted fault is found."""

from __future__ import annotations

import pytest

from tests.support.stores.members_model import Fault, explore


def test_no_interleaving_of_two_members_breaks_a_promise() -> None:
    """Each member may crash, hang or be lost; a connection breaks, or the service is killed."""
    found = explore()
    assert (found.broken, found.way) == ("", ())
    assert found.states > 150_000


@pytest.mark.parametrize("fault", [each for each in Fault if each is not Fault.NONE])
def test_the_model_finds_what_is_broken(fault: Fault) -> None:
    found = explore(fault)
    assert found.broken
    assert len(found.way) <= 6
