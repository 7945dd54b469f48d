"""Who may do what, and how long a failed login waits."""

from __future__ import annotations

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.attempts import (
    FORGIVEN_AFTER_S,
    LONGEST_DELAY_S,
    MOST_NAMES_OF_ADDRESS,
    FailedLogins,
    WaitingNames,
    network_of,
)
from broker_shim.security.rules.permissions import (
    AccessTarget,
    Permission,
    Permissions,
    Principal,
    Rule,
    rule_of,
)

ANN = Principal("ann", frozenset({"shop"}))
BOB = Principal("bob")
ANYBODY = Principal()
ORDERS = AccessTarget("orders", "orders")


def rule(who: list[str], address: str, *allow: str) -> Rule:
    return rule_of({"who": who, "address": address, "allow": list(allow)})


def test_without_rules_everybody_may_do_everything() -> None:
    assert all(
        Permissions().allow(who, act, ORDERS) for who in (ANN, ANYBODY) for act in Permission
    )


def test_with_a_rule_all_else_is_refused() -> None:
    permissions = Permissions([rule(["ann"], "orders", "read")])
    assert permissions.allow(ANN, Permission.READ, ORDERS)
    assert not permissions.allow(ANN, Permission.WRITE, ORDERS)
    assert not permissions.allow(ANN, Permission.READ, AccessTarget("bills", "bills"))
    assert not permissions.allow(BOB, Permission.READ, ORDERS)
    assert not permissions.allow(ANYBODY, Permission.READ, ORDERS)


@pytest.mark.parametrize(
    ("who", "principal", "is_meant"),
    [
        ("ann", ANN, True),
        ("role:shop", ANN, True),
        ("shop", ANN, False),
        ("role:ann", ANN, False),
        ("*", ANN, True),
        ("*", ANYBODY, True),
        ("anonymous", ANYBODY, True),
        ("anonymous", ANN, False),
        ("ann", BOB, False),
    ],
)
def test_a_rule_is_for_users_roles_or_everybody(
    who: str, principal: Principal, is_meant: bool
) -> None:
    permissions = Permissions([rule([who], "#", "write")])
    assert permissions.allow(principal, Permission.WRITE, ORDERS) == is_meant


@pytest.mark.parametrize(
    ("pattern", "place", "fits"),
    [
        ("orders", AccessTarget("orders"), True),
        ("orders.#", AccessTarget("orders"), True),
        ("orders.#", AccessTarget("orders.eu.new", "late"), True),
        ("orders.*", AccessTarget("orders"), False),
        ("orders.*", AccessTarget("orders.eu"), True),
        ("#", AccessTarget("anything"), True),
        ("orders::late", AccessTarget("orders", "late"), True),
        ("orders::late", AccessTarget("orders", "orders"), False),
        ("orders::late", AccessTarget("orders"), False),
        ("orders::#", AccessTarget("orders", "any"), True),
        ("#::ann.*", AccessTarget("prices", "ann.1"), True),
        ("#::ann.*", AccessTarget("prices", "bob.1"), False),
    ],
)
def test_a_pattern_is_for_an_address_or_for_a_queue_on_it(
    pattern: str, place: AccessTarget, fits: bool
) -> None:
    assert Permissions([rule(["*"], pattern, "read")]).allow(BOB, Permission.READ, place) == fits


def test_rules_add_up_and_admin_is_all_of_them() -> None:
    permissions = Permissions([rule(["ann"], "orders", "read"), rule(["*"], "orders", "write")])
    assert permissions.allow(ANN, Permission.READ, ORDERS)
    assert permissions.allow(ANN, Permission.WRITE, ORDERS)
    assert not permissions.allow(ANN, Permission.ADMIN, ORDERS)
    admin = Permissions([rule(["ann"], "orders", "admin")])
    assert all(admin.allow(ANN, act, ORDERS) for act in Permission)


@pytest.mark.parametrize(
    "item",
    [
        "ann",
        {"who": ["ann"], "address": "orders"},
        {"who": ["ann"], "address": "orders", "allow": ["read"], "deny": []},
        {"who": "ann", "address": "orders", "allow": ["read"]},
        {"who": [], "address": "orders", "allow": ["read"]},
        {"who": ["ann"], "address": "orders", "allow": []},
        {"who": ["ann"], "address": "orders", "allow": ["fly"]},
        {"who": ["ann", 1], "address": "orders", "allow": ["read"]},
        {"who": ["role:"], "address": "orders", "allow": ["read"]},
        {"who": ["ann"], "address": "", "allow": ["read"]},
        {"who": ["ann"], "address": "::q", "allow": ["read"]},
        {"who": ["ann"], "address": 1, "allow": ["read"]},
    ],
)
def test_what_is_no_rule_is_refused(item: object) -> None:
    with pytest.raises(InvalidRequest):
        rule_of(item)


# ------------------------------------------------------------------------------- failed logins


def test_each_failure_of_an_address_waits_twice_as_long_up_to_a_limit() -> None:
    logins = FailedLogins(0.5)
    assert [logins.failed("10.0.0.1", now) for now in range(6)] == [0.5, 1, 2, 4, 8, 8]
    assert logins.failed("10.0.0.2", 6.0) == 0.5


def test_a_quiet_minute_forgives() -> None:
    logins = FailedLogins(0.5)
    for now in range(5):
        logins.failed("10.0.0.1", now)
    assert logins.failed("10.0.0.1", 4 + FORGIVEN_AFTER_S) == 0.5
    assert logins.failed("10.0.0.1", 5 + FORGIVEN_AFTER_S) == 1.0


def test_thousands_of_failures_overflow_nothing() -> None:
    logins = FailedLogins(0.5)
    assert max(logins.failed("10.0.0.1", 1.0) for _ in range(5_000)) == LONGEST_DELAY_S
    for number in range(20_000):
        logins.failed(f"10.1.{number >> 8}.{number & 255}", 1.0)
    assert len(logins._failures) == 10_000


def test_an_ipv6_network_is_one_peer_and_a_mapped_address_its_ipv4() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2")
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("") == ""


def test_a_name_waits_at_its_address_and_no_other_does() -> None:
    waiting = WaitingNames()
    waiting.failed("10.0.0.1", "ann", 8.0)
    assert waiting.left_s("10.0.0.1", "ann", 3.0) == 5.0
    assert waiting.left_s("10.0.0.1", "bob", 3.0) == 0.0
    assert waiting.left_s("10.0.0.2", "ann", 3.0) == 0.0
    assert waiting.left_s("10.0.0.1", "ann", 8.0) == 0.0


def test_an_address_has_only_so_many_names_that_wait_until_they_may_try_again() -> None:
    waiting = WaitingNames()
    for number in range(MOST_NAMES_OF_ADDRESS):
        assert waiting.left_s("10.0.0.1", f"n{number}", 1.0) == 0.0
        waiting.failed("10.0.0.1", f"n{number}", 8.0)
        waiting.failed("10.0.0.1", f"n{number}", 9.0)
    assert waiting.left_s("10.0.0.1", "other", 1.0) == 0.5
    assert waiting.left_s("10.0.0.2", "other", 1.0) == 0.0
    assert waiting.left_s("10.0.0.1", "other", 9.0) == 0.0


def test_what_is_remembered_of_failed_names_is_bounded() -> None:
    waiting = WaitingNames()
    for number in range(20_000):
        waiting.failed(f"10.0.{number // 250}.{number % 250}", "n" * 1000, 8.0)
    assert waiting.left_s("10.0.0.0", "n" * 1000, 0.0) == 0.0, "the oldest is forgotten"
    assert waiting.left_s("10.0.79.249", "n" * 1000, 0.0) == 8.0
    assert len(waiting._until_s) == len(waiting._counts) == 10_000
