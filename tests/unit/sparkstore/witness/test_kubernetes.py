"""A witness in a Kubernetes Lease, whose API server fails as such servers do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.tables.root import Identity
from sparkstore.witness.holder import Holder, packed
from sparkstore.witness.kubernetes import KubernetesPlace
from sparkstore.witness.lease import Witness
from sparkstore.witness.turn import sight, take_place
from tests.support.amqp.certificates import Authority
from tests.support.objects.lease_server import DROP, LeaseServer, served

WHERE = "kubernetes:queues/orders"
PRIMARY, STANDBY = Identity("a" * 32), Identity("b" * 32, generation=2)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseServer]:
    with served(tmp_path, monkeypatch) as lease_server:
        yield lease_server


@pytest.fixture
def place(server: LeaseServer) -> KubernetesPlace:
    return KubernetesPlace(WHERE, 5.0, server.environment)


def text(number: int) -> bytes:
    return packed(Holder("a" * 32, 3, "w", 2.5, renewal=number, where="one:/queues"))


def once(answer: int, method: str = "PUT") -> Callable[[str], int | None]:
    left = [answer]
    return lambda asked: left.pop() if left and asked == method else None


def test_kubectl_shows_who_serves_and_what_else_a_manifest_says_stays(
    server: LeaseServer, place: KubernetesPlace
) -> None:
    server.verbs = {"GET", "PUT"}  # the role of conf/kubernetes
    labels = {"app": "sparkstore"}
    metadata = {"name": "orders", "labels": labels, "uid": "u", "resourceVersion": "7"}
    server.leases["orders"] = {"metadata": metadata}  # kubectl made it
    assert place.read() is None
    assert place.put_if_absent(text(1))
    lease = server.leases["orders"]
    assert lease["metadata"]["labels"] == labels
    assert lease["spec"]["holderIdentity"] == "one:/queues"
    assert lease["spec"]["leaseDurationSeconds"] == 3
    assert lease["spec"]["leaseTransitions"] == 3
    assert lease["spec"]["renewTime"].endswith("Z")
    closed = packed(Holder("a" * 32, 3, "w", 2.5, where="one:/queues", is_closed=True))
    assert place.replace_if_unchanged(closed, lease["metadata"]["resourceVersion"])
    assert server.leases["orders"]["spec"]["holderIdentity"] == ""
    place.delete()
    assert place.read() is None
    assert server.leases["orders"]["metadata"]["labels"] == labels


def test_a_lease_of_something_else_is_refused(server: LeaseServer, place: KubernetesPlace) -> None:
    metadata = {"name": "orders", "uid": "u", "resourceVersion": "7"}
    server.leases["orders"] = {"metadata": metadata, "spec": {"holderIdentity": "a scheduler"}}
    with pytest.raises(InvalidRequest, match="Lease of something else, a scheduler: name another"):
        place.put_if_absent(text(1))


def test_a_token_that_rotates_is_read_again(server: LeaseServer, place: KubernetesPlace) -> None:
    place.put_if_absent(text(1))
    server.rotate("second")
    assert place.read() is not None
    server.token = "third"  # the kubelet is late
    with pytest.raises(Unavailable, match="says 401 Unauthorized"):
        place.read()
    server.rotate("third")
    assert place.read() is not None


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_server_that_fails_now_is_asked_again_later(
    server: LeaseServer, place: KubernetesPlace, status: int
) -> None:
    place.put_if_absent(text(1))
    stored = place.read()
    assert stored is not None
    server.faults.append(once(status))
    with pytest.raises(Unavailable, match=f"says {status}"):
        place.replace_if_unchanged(text(2), stored.tag)
    assert place.replace_if_unchanged(text(2), stored.tag)


def test_an_answer_that_was_lost_is_seen_at_the_next_look(
    server: LeaseServer, place: KubernetesPlace
) -> None:
    place.put_if_absent(text(1))
    stored = place.read()
    assert stored is not None
    server.faults.append(once(DROP))
    with pytest.raises(Unavailable, match="did not answer"):
        place.replace_if_unchanged(text(2), stored.tag)
    assert place.replace_if_unchanged(text(2), stored.tag)  # it was done: this is what stands
    assert not place.replace_if_unchanged(text(3), stored.tag)


def test_a_role_that_lacks_a_verb_and_a_namespace_that_is_absent_are_refused(
    server: LeaseServer, place: KubernetesPlace
) -> None:
    server.verbs = {"GET"}
    with pytest.raises(InvalidRequest, match="403 cannot POST leases: its role needs get and upd"):
        place.put_if_absent(text(1))
    elsewhere = KubernetesPlace("kubernetes:absent/orders", 5.0, server.environment)
    with pytest.raises(InvalidRequest, match="there is no such namespace"):
        elsewhere.put_if_absent(text(1))


def test_a_server_that_hangs_or_is_not_the_clusters_own_is_no_answer(
    server: LeaseServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = {"KUBERNETES_SERVICE_PORT": str(silent.getsockname()[1])}
        with pytest.raises(Unavailable, match="did not answer"):
            KubernetesPlace(WHERE, 0.05, server.environment | port).read()
    another = Authority(tmp_path / "another").pair.certificate
    (server.account / "ca.crt").write_bytes(another.read_bytes())
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        KubernetesPlace(WHERE, 5.0, server.environment).read()
    server.account.joinpath("token").unlink()
    with pytest.raises(Unavailable, match="token"):
        KubernetesPlace(WHERE, 5.0, server.environment).read()


@pytest.mark.parametrize("where", ["kubernetes:", "kubernetes:queues", "kubernetes:a/b/c"])
def test_a_name_that_is_none_is_refused(where: str, server: LeaseServer) -> None:
    with pytest.raises(InvalidRequest, match="say kubernetes:NAMESPACE/NAME of a Lease"):
        KubernetesPlace(where, 5.0, server.environment)
    with pytest.raises(InvalidRequest, match="this process is in no pod"):
        KubernetesPlace(WHERE, 5.0, {})


def test_a_primary_holds_its_lease_through_conflicts_and_loses_it_to_a_standby(
    server: LeaseServer, place: KubernetesPlace
) -> None:
    witness = Witness(place, PRIMARY, "/primary", 10.0)
    witness.claim(is_new=True)
    witness.name_in_step(STANDBY.root_id)
    server.faults.append(once(409))  # somebody wrote in between
    witness.renew()
    assert witness.left_s > 9
    other = KubernetesPlace(WHERE, 5.0, server.environment)
    sighted = sight(other)
    assert sighted is not None
    witness.renew()
    assert not take_place(other, *sighted, STANDBY, "/standby")  # it has renewed meanwhile
    sighted = sight(other)
    assert sighted is not None
    assert take_place(other, *sighted, STANDBY, "/standby")
    with pytest.raises(StoreError, match="took over, with generation 2"):
        witness.renew()
