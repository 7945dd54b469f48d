"""Whose a link is: no two users' containers are one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.links.termini.owner import owner_of
from broker_shim.security.rules.users import ANONYMOUS
from broker_shim.sockets.owners import owned

NAMES = st.sampled_from([ANONYMOUS, "ann", "ann/", "a%2Fb", "a/b", "%", "2F"])
CONTAINERS = st.text("/%2Fabn", max_size=8)


def test_an_anonymous_container_is_what_it_says_and_a_users_names_the_user() -> None:
    assert owned("client-1", ANONYMOUS) == "client-1"
    assert owned("client-1", "ann") == "ann/client-1"
    assert owned("ann/client-1", ANONYMOUS) == "ann%2Fclient-1"
    assert owned("b/c", "a") != owned("c", "a/b")


@given(NAMES, CONTAINERS, NAMES, CONTAINERS)
def test_no_two_are_one_text(user: str, container: str, other: str, theirs: str) -> None:
    same = (user, container) == (other, theirs)
    assert (owned(container, user) == owned(theirs, other)) == same


@given(NAMES, CONTAINERS, NAMES, CONTAINERS)
def test_containers_share_something_if_they_are_one_users(
    user: str, container: str, other: str, theirs: str
) -> None:
    same = owner_of(owned(container, user)) == owner_of(owned(theirs, other))
    assert same == (user == other)
