"""A root in a bucket as the primary of replicas: copied beside its store, and stopped by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader
from sparkstore.bucket.job_copy import job_copy
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.errors import Fenced, InvalidRequest, StoreError
from sparkstore.replication import replicas
from sparkstore.replication.bucket_promote import promote_in_place
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.fencing import identity_at
from tests.support.objects.copies import bodies_in, compact, copy, enqueue
from tests.support.objects.s3_server import Request, S3Server, served
from tests.support.roots.logs import until
from tests.support.stores.stores import done

pytestmark = pytest.mark.slow

URI, REPLICA = "s3://lake/queues", "s3://lake/far/queues"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


@pytest.fixture
def replica() -> ObjectStorage:
    return ObjectStorage(REPLICA)


def store_at(uri: str, fence_check_s: float = 3600) -> DeltaMessageStore:
    return DeltaMessageStore(uri, StoreConfig(commit_interval_ms=0, fence_check_s=fence_check_s))


def put(store: DeltaMessageStore, body: bytes) -> None:
    done(store.enqueue, store.message(MessageHeader(), body), "q")


def test_a_bucket_is_copied_to_another_beside_its_store_which_a_promotion_stops(
    server: S3Server, replica: ObjectStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(URI, b"one")
    with closing(store_at(URI)) as store:
        assert main(["replicate", "--json", URI, REPLICA]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["primary"], report["root"]) == (URI, REPLICA)
        assert (report["position_before"], report["lag_records"]) == (0, 0)
        put(store, b"two")
        with job_copy(ObjectStorage(URI), "compact", tmp_path / "jobs") as jobs:
            compact(jobs.root.path)
            jobs.finish()
        put(store, b"three")
        server.requests.clear()
        assert copy(URI, replica).position_before == report["position_after"]
        fetched = [each.key for each in server.requests if each.method == "GET"]
        assert not any(key in server.objects for key in fetched if "segment=1/" in key)
        assert main(["verify", "--deep", REPLICA]) == 0
        assert main(["promote", REPLICA]) == 0
        with pytest.raises(Fenced, match=f"{REPLICA} took over"):
            put(store, b"late")
    assert bodies_in(REPLICA) == [b"one", b"two", b"three"]
    with pytest.raises(Fenced, match=f"{URI} is fenced: {REPLICA} took over"):
        store_at(URI)
    assert main(["replicate", URI, REPLICA]) == 3


def test_what_comes_while_it_is_copied_is_the_lag(server: S3Server, replica: ObjectStorage) -> None:
    enqueue(URI, b"one")
    with closing(store_at(URI)) as store:

        def meanwhile(request: Request) -> int | None:
            if request.method == "PUT" and "far/queues/journal/_delta_log" in request.key:
                server.faults = []
                put(store, b"two")
            return None

        server.faults = [meanwhile]
        assert copy(URI, replica).lag_records > 0
        assert copy(URI, replica).lag_records == 0


def test_a_run_that_is_cut_off_at_any_put_is_made_good_by_the_next(
    server: S3Server, replica: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(URI, b"one", b"two")
    before = dict(server.objects)
    for last in range(1, 50):
        left = [last]

        def cut(request: Request, left: list[int] = left) -> int | None:
            left[0] -= request.method == "PUT"
            return 403 if left[0] < 0 and request.method == "PUT" else None

        server.objects, server.faults = dict(before), [cut]
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(last)))  # no copy of the last round
        with suppress(StoreError):
            copy(URI, replica)
        server.faults = []
        copy(URI, replica)
        promote_in_place(replica)
        assert bodies_in(REPLICA) == [b"one", b"two"]
        if left[0] >= 0:
            return
    pytest.fail("it never ends")


def test_a_store_whose_bucket_the_promotion_cannot_write_to_sees_it_in_the_replica(
    server: S3Server, replica: ObjectStorage
) -> None:
    enqueue(URI, b"one")
    with closing(store_at(URI, fence_check_s=0.02)) as store:
        copy(URI, replica)
        server.faults = [
            lambda r: 403 if r == Request("PUT", "queues/root.json") else None,
        ]
        assert not promote_in_place(replica).old_fenced
        server.faults = []

        def is_fenced() -> bool:
            try:
                put(store, b"late")
            except Fenced:
                return True
            return False

        until(is_fenced)


@pytest.mark.parametrize(
    ("method", "place"),
    [("GET", "journal/_delta_log/"), ("PUT", "epoch/"), ("PUT", "journal/_delta_log/")],
)
def test_a_start_that_looked_before_the_promotion_does_not_serve(
    server: S3Server, replica: ObjectStorage, method: str, place: str
) -> None:
    enqueue(URI, b"one")
    copy(URI, replica)

    def promoted(request: Request) -> int | None:
        if request.method == method and request.key.startswith(f"queues/{place}"):
            server.faults = []
            promote_in_place(replica, accept_loss=True)
        return None

    server.faults = [promoted]
    with pytest.raises(Fenced, match=f"{REPLICA} took over"):
        store_at(URI)
    assert server.faults == []
    assert bodies_in(REPLICA) == [b"one"]


def test_a_replica_that_is_behind_is_promoted_only_on_purpose(replica: ObjectStorage) -> None:
    enqueue(URI, b"one")
    copy(URI, replica)
    enqueue(URI, b"two")
    with pytest.raises(InvalidRequest, match="records that s3://lake/far/queues has not"):
        promote_in_place(replica)
    promote_in_place(replica, accept_loss=True)
    assert bodies_in(REPLICA) == [b"one"]


def test_a_write_ahead_log_that_may_hold_more_is_named_before_a_promotion(
    replica: ObjectStorage, tmp_path: Path
) -> None:
    enqueue(URI, b"one")
    config = StoreConfig(ack="wal", wal_dir=str(tmp_path / "wal"))
    with closing(DeltaMessageStore(URI, config)):
        copy(URI, replica)
        with pytest.raises(InvalidRequest, match=f"in {tmp_path / 'wal'} of .* may hold more"):
            promote_in_place(replica)


def test_what_may_not_be_primary_and_replica_is_refused(
    replica: ObjectStorage, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="is not a sparkstore root"):
        copy(URI, replica)
    enqueue(URI, b"one")
    for uri, why in ((URI, "the primary itself"), (f"{URI}/copy", "lie one in the other")):
        with pytest.raises(InvalidRequest, match=why):
            copy(URI, ObjectStorage(uri))
    copy(URI, replica)
    with pytest.raises(InvalidRequest, match=f"is a replica: replicate from its primary, {URI}"):
        replicas.check(REPLICA, tmp_path / "folder")
    found = identity_at(ObjectStorage(URI))
    assert found is not None
    assert found.replicas == [REPLICA]
