"""Who may be a standby of a primary, and which machine of a pair serves at its start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkstore.errors import Fenced, InvalidRequest
from sparkstore.shipping.frames import PROTOCOL, StandbyHello
from sparkstore.standby.admission import StartRole, check_standby, check_token, role_at_start
from sparkstore.tables.fencing import STANDBY
from sparkstore.tables.root import Identity
from sparkstore.tables.schema import SCHEMA_VERSION
from sparkstore.witness.holder import Holder

PRIMARY = Identity("a" * 32, generation=3, primary_id="b" * 32, superseded=["c" * 32])
NEW = StandbyHello(PROTOCOL, SCHEMA_VERSION, "token", "d" * 32)
OWN = NEW._replace(role=STANDBY, primary_id="a" * 32, generation=3)


@pytest.mark.parametrize(
    "hello",
    [
        NEW,
        OWN,
        OWN._replace(role="primary", root_id="b" * 32, primary_id="", generation=2),  # the old one
        OWN._replace(primary_id="b" * 32, generation=2),  # it missed a take-over
    ],
)
def test_a_new_root_and_one_of_the_family_may_come(hello: StandbyHello) -> None:
    check_standby(hello, PRIMARY)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (OWN._replace(root_id="a" * 32), "a standby needs a root of its own"),
        (OWN._replace(primary_id="e" * 32), "of another store: give it an empty folder"),
        (OWN._replace(role="replica"), "a replica that replicate or backup writes"),
        (NEW._replace(schema_version=SCHEMA_VERSION + 1), "install the same sparkstore on both"),
    ],
)
def test_any_other_root_is_refused_by_what_to_do(hello: StandbyHello, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_standby(hello, PRIMARY)


def test_one_that_took_over_makes_the_old_primary_end() -> None:
    with pytest.raises(Fenced, match="that one took over, use it"):
        check_standby(OWN._replace(generation=4), PRIMARY)


def test_a_wrong_token_is_refused() -> None:
    check_token(NEW, "token")
    with pytest.raises(InvalidRequest, match="the token is wrong"):
        check_token(NEW, "another")


def test_a_start_asks_the_witness_who_serves() -> None:
    own = Identity("a" * 32)
    held = Holder("a" * 32, 1, "w", 10.0)
    assert role_at_start(None, None, "root") is StartRole.SERVE
    assert role_at_start(own, held, "root") is StartRole.SERVE
    assert role_at_start(own, replace(held, root_id="b" * 32), "root") is StartRole.FOLLOW
    assert role_at_start(None, held, "root") is StartRole.FOLLOW
    assert role_at_start(replace(own, role=STANDBY), held, "root") is StartRole.FINISH


def test_a_standby_never_makes_itself_the_primary_of_an_empty_witness() -> None:
    with pytest.raises(InvalidRequest, match="its witness is empty"):
        role_at_start(Identity("a" * 32, role=STANDBY), None, "root")
