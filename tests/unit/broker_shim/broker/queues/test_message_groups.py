"""Who has which message group after a restart: whoever held a message of it before."""

from __future__ import annotations

import pytest

from broker_shim.broker.queues.message_groups import Groups

GROUP, HOLDER = 7, "its name"


@pytest.fixture
def groups() -> Groups:
    """Message 1 has been held since before a restart."""
    groups = Groups()
    groups.held(1, HOLDER)
    return groups


def test_nobody_else_has_a_group_until_what_was_held_has_ended(groups: Groups) -> None:
    assert [*groups.unplaced] == [1]
    groups.placed(1, GROUP)
    assert not groups.unplaced
    assert not groups.may_have(GROUP, "another")
    assert groups.ended(1), "it is free"
    assert groups.may_have(GROUP, "another")


@pytest.mark.parametrize("is_early", [True, False])
def test_who_comes_has_its_groups_as_long_as_it_is_here(groups: Groups, is_early: bool) -> None:
    consumer = object()
    if is_early:
        groups.came(HOLDER, consumer)
    groups.placed(1, GROUP)
    if not is_early:
        groups.came(HOLDER, consumer)
    assert groups.may_have(GROUP, consumer)
    assert not groups.ended(1), "it is here"
    assert not groups.may_have(GROUP, "another")
    assert groups.left(consumer)
    assert groups.may_have(GROUP, "another")


def test_what_ended_before_its_group_was_known_is_nobodys(groups: Groups) -> None:
    assert not groups.ended(1)
    groups.placed(1, GROUP)
    assert groups.may_have(GROUP, "another")


def test_a_consumer_that_left_and_came_again_keeps_what_it_holds(groups: Groups) -> None:
    consumer = object()
    groups.came(HOLDER, consumer)
    groups.handed_out(2, GROUP, consumer)
    assert not groups.left(consumer)
    groups.came(HOLDER, consumer)
    assert not groups.ended(2)
    assert not groups.may_have(GROUP, "another")


def test_a_message_of_no_group_keeps_nobody_from_anything(groups: Groups) -> None:
    groups.placed(1, None)
    assert groups.may_have(GROUP, "another")
    assert not groups.ended(1)
