"""How a peer gets in, by bytes: what is written down, and what counts how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.amqp_1_0.composites import SaslInit
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.protocol_1_0.codec.frames import SASL_FRAME, SASL_HEADER, encoded_frame
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.users import LEAST_ITERATIONS, User
from broker_shim.security.security_settings import PASSWORD_MECHANISMS, SecuritySettings
from broker_shim.security.users_file import changing_users
from broker_shim.sockets.access import Access
from sparkstore.control.audit import AuditEvent
from tests.support.amqp.link_clients import House, Place

PEER = Remote("10.0.0.7", 40312)


class Door:
    """Connections of one peer, and what is written down of them."""

    def __init__(self, house: House, users: Path) -> None:
        self.house = house
        self.lines: list[tuple[AuditEvent, str]] = []
        self.guard = Guard(SecuritySettings(str(users)), PASSWORD_MECHANISMS, self._audit)

    def _audit(self, event: AuditEvent, **details: object) -> None:
        self.lines.append((event, str(details.get("reason"))))

    def come(self, mechanism: str, response: bytes) -> Connection:
        """A connection that has said so much of SASL."""
        access = Access(self.guard, PEER, self.guard.half_open.enter(PEER.host))
        connection = self.house.host.connect(lambda: None, access)
        init = encoded_frame(SaslInit(mechanism, response), kind=SASL_FRAME)
        connection.receive(SASL_HEADER.encoded() + init)
        return connection

    def counted(self, now_s: float) -> bool:
        """Whether the peer's address counts as half-open."""
        refusal = self.guard.half_open.refusal_of_newcomer(
            PEER.host, 0, most=8, most_half_open=1, now_s=now_s
        )
        return refusal is not None


@pytest.fixture
def door(tmp_path: Path) -> Door:
    with changing_users(tmp_path / "users.json") as users:
        users["ann"] = User("ann", secrets=secrets_of("secret", LEAST_ITERATIONS))
    return Door(House(Place("memory", tmp_path)), tmp_path / "users.json")


@pytest.mark.parametrize("is_told", [True, False], ids=["eof", "reset"])
def test_an_exchange_that_was_begun_and_given_up_is_a_failed_login(
    door: Door, is_told: bool
) -> None:
    """Else somebody could ask about any number of names, and nobody would know."""
    connection = door.come("SCRAM-SHA-256", b"n,,n=ann,r=nonce")
    assert not door.lines
    if is_told:
        connection.receive(b"")
    connection.lost()
    connection.lost()
    assert door.lines == [(AuditEvent.LOGIN_FAILED, "given up when it was asked, as 'ann'")]
    connection.access.newcomer.leave()
    assert door.counted(0.0)
