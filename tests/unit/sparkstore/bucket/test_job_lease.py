"""The jobs' lease in a bucket: one at a time, free when its holder is dead, lost when taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkstore.bucket.job_lease import LEASE_S, NAME, JobLease
from sparkstore.errors import CorruptData, Locked, Unavailable
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects.s3_server import DROP, S3Server, once, served
from tests.support.roots.logs import until

URI = "s3://lake/queues"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.fixture
def bucket(server: S3Server) -> ObjectStorage:
    return ObjectStorage(URI)


@contextmanager
def held(bucket: ObjectStorage, **more: object) -> Iterator[JobLease]:
    lease = JobLease(bucket, "compact", **more)  # type: ignore[arg-type]
    try:
        yield lease
    finally:
        lease.give_back()


def no_wait(_seconds: float) -> None:
    pytest.fail("nobody holds it")


def told_of(server: S3Server) -> dict[str, object]:
    found: dict[str, object] = json.loads(server.objects[f"queues/{NAME}"])
    return found


def test_one_job_after_the_other_has_it_at_once(server: S3Server, bucket: ObjectStorage) -> None:
    for _ in range(2):
        with held(bucket, wait=no_wait) as lease:
            lease.check()
            assert told_of(server)["is_free"] is False
        assert told_of(server)["is_free"] is True


def test_a_job_that_is_at_work_keeps_others_out(bucket: ObjectStorage) -> None:
    with held(bucket) as first:

        def while_waiting(_seconds: float) -> None:
            first._renew()

        with pytest.raises(Locked, match=r"the job compact of .* is at work"):
            JobLease(bucket, "compact", wait=while_waiting)
        first.check()


def test_the_lease_of_a_dead_job_is_free_after_its_time_and_a_quarter_more(
    server: S3Server, bucket: ObjectStorage
) -> None:
    with held(bucket):
        dead = server.objects[f"queues/{NAME}"]
    server.objects[f"queues/{NAME}"] = dead
    waited: list[float] = []
    with held(bucket, wait=waited.append) as lease:
        lease.check()
    assert sum(waited) >= LEASE_S * 1.25


def test_a_job_that_lost_its_lease_is_told_before_it_commits(
    server: S3Server, bucket: ObjectStorage
) -> None:
    with held(bucket, lease_s=0.06) as first:
        stolen = {**told_of(server), "owner": "another", "where": "elsewhere:1"}
        server.objects[f"queues/{NAME}"] = json.dumps(stolen).encode()
        until(lambda: first._lost)
        with pytest.raises(Unavailable, match="elsewhere:1 has the jobs' lease now: run it again"):
            first.check()
    assert told_of(server)["owner"] == "another", "giving it back took it from another"


def test_a_lease_that_could_not_be_renewed_runs_out(
    server: S3Server, bucket: ObjectStorage
) -> None:
    with held(bucket, lease_s=0.05) as lease:
        server.faults = [lambda request: 403 if NAME in request.key else None]
        until(lambda: server.requests[-1].key.endswith(NAME))

        def is_refused() -> bool:
            try:
                lease.check()
            except Unavailable as reason:
                return "was not renewed" in str(reason)
            return False

        until(is_refused)
        server.faults = []


def test_an_answer_that_is_lost_leaves_no_second_holder(
    server: S3Server, bucket: ObjectStorage
) -> None:
    server.faults = [once("PUT", NAME, DROP)]
    with held(bucket, wait=no_wait) as lease:
        lease.check()


def test_a_lease_that_cannot_be_read_is_told(server: S3Server, bucket: ObjectStorage) -> None:
    server.objects[f"queues/{NAME}"] = b"{"
    with pytest.raises(CorruptData, match="remove it if no job runs"):
        JobLease(bucket, "compact")
