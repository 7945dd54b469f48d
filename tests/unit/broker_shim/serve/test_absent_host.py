"""A Broker-J host that is away, by itself or with its service: what others may change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.control.client import open_control
from sparkstore.core.state_machine.sole_host import SoleHost, sole_host
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.stores.controls import ServedRoot, ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.stores import DELTA_CONFIG

START = "a start of the host"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    DeltaMessageStore(tmp_path / "root", DELTA_CONFIG).close()
    return tmp_path / "root"


@contextmanager
def service_of(root: Path) -> Iterator[ServicedRoot]:
    there = ServicedRoot(root)
    try:
        yield there
    finally:
        there.stop()


def host_at(service: ServicedRoot, incarnation: str = START) -> RawMember:
    host = RawMember(service.path, "host", incarnation)
    host.hello("vhost", exclusive=True)
    return host


def sent_away(service: ServicedRoot, member: str, incarnation: str, host: str | None) -> list[str]:
    """Error and message that end the connection of who greets so."""
    with RawMember(service.path, member, incarnation) as peer:
        peer.say(wire.HELLO, wire.VERSION, member, incarnation, host, host is not None, None)
        frame = peer.hears()
        assert frame is not None
        assert frame[0] == wire.GOODBYE, frame
        return [*frame[1]]


def make(root: Path, queue: str) -> None:
    with closing(open_control(root)) as control:
        assert control.order(Order(AdminAction.CREATE_QUEUE, queue))["changed"]


def known(service: ServicedRoot) -> SoleHost | None:
    with service.store.look() as machine:
        return sole_host(machine.state)


def left(service: ServicedRoot) -> bool:
    return known(service) == SoleHost("vhost")


def test_nothing_is_changed_while_only_the_service_of_a_host_is_away(root: Path) -> None:
    with service_of(root) as service:
        living = host_at(service)
    with living, pytest.raises(InvalidRequest, match="stop that host, then start the service"):
        make(root, "new")
    with service_of(root) as service:
        with pytest.raises(Unavailable, match="stop that host, and try again when the grace"):
            make(root, "new")
        error, message = sent_away(service, "a broker", "first", None)
        assert error == "Unavailable"
        assert "Broker-J host 'vhost' was attached" in message
        with host_at(service), pytest.raises(InvalidRequest, match="host is attached"):
            make(root, "new")
        until(lambda: left(service))
        make(root, "later")
    assert [*recover(open_root(root)).state.queues] == ["later"]


def test_a_host_that_does_not_come_back_in_its_grace_keeps_nobody_from_the_root(
    root: Path,
) -> None:
    with service_of(root) as service:
        dead = host_at(service)
    dead.close()
    with service_of(root) as service:
        with service.store.batch() as batch:
            service.service.members.lose(batch, "host")
        make(root, "new")


@pytest.mark.parametrize("is_served", [True, False])
def test_a_host_that_missed_a_change_is_sent_away_and_its_next_start_is_welcome(
    root: Path, *, is_served: bool
) -> None:
    with service_of(root) as service:
        host_at(service).close()
        until(lambda: left(service))
        host_at(service).close()
        until(lambda: left(service))
        if is_served:
            make(root, "new")
    if not is_served:
        make(root, "new")
    with service_of(root) as service:
        for _ in range(2):
            error, message = sent_away(service, "host", START, "vhost")
            assert error == "Fenced"
            assert "start that host again" in message
        host_at(service, "the next").close()
        until(lambda: left(service))
        host_at(service, "the next").close()


def test_a_broker_that_serves_the_root_instead_changes_what_a_host_has_read(root: Path) -> None:
    with service_of(root) as service:
        living = host_at(service)
    living.close()
    ServedRoot(root).stop()
    assert sole_host(recover(open_root(root)).state) == SoleHost("vhost", is_changed=True)
    with service_of(root) as service:
        assert sent_away(service, "host", START, "vhost")[0] == "Fenced"


def test_a_broker_that_joins_changes_what_a_host_has_read(root: Path) -> None:
    with service_of(root) as service:
        host_at(service).close()
        until(lambda: left(service))
        with RawMember(service.path, "a broker") as member:
            member.hello()
        assert known(service) == SoleHost("vhost", is_changed=True)
