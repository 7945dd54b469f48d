"""Two jobs on a bucket, one stopped (SIGSTOP) before its commit until the other has taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from deltalake import DeltaTable

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.bucket.job_copy import TABLES, job_copy
from sparkstore.bucket.job_lease import NAME as LEASE
from sparkstore.config import StoreConfig
from sparkstore.storage.objects import ObjectStorage
from tests.support.checkout import CHECKOUT
from tests.support.objects.copies import compact
from tests.support.objects.s3_server import S3Server, served
from tests.support.stores.stores import TIMEOUT_S, done

pytestmark = [pytest.mark.system, pytest.mark.slow]

URI = "s3://lake/queues"
ROUNDS = int(os.environ.get("SPARKSTORE_STOPPED_JOBS", "2"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


def enqueue(folder: Path, body: bytes) -> None:
    store = DeltaMessageStore(URI, StoreConfig(copy_dir=str(folder), commit_interval_ms=0))
    if not store.recover().queues:
        done(store.create, Queue("q"))
    done(store.enqueue, store.message(MessageHeader(), body), "q")
    store.close()


def ends(folder: Path) -> dict[str, int]:
    """The last position of each table of jobs, in the bucket."""
    with job_copy(ObjectStorage(URI), "look", folder) as copy:
        return {
            name: max(
                DeltaTable(str(copy.root.table(name))).to_pyarrow_table()["position"].to_pylist()
            )
            for name in TABLES
        }


@contextmanager
def stopped_job(folder: Path, table: str) -> Iterator[IO[str]]:
    """A job that has stopped before its commit to a table; goes on in the end."""
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.support.system.stopped_job", URI, str(folder), table],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert job.stdout is not None
    try:
        assert job.stdout.readline() == "commits\n"
        _, status = os.waitpid(job.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield job.stdout
        os.kill(job.pid, signal.SIGCONT)
        assert job.stdout.read() == "refused\n"
        assert job.wait(TIMEOUT_S) == 0
    finally:
        job.kill()
        job.wait()
        job.stdout.close()


def test_a_job_that_was_stopped_before_its_commit_loses_nothing_of_another(
    server: S3Server, tmp_path: Path
) -> None:
    for number in range(ROUNDS):
        enqueue(tmp_path / "store", b"%d" % number)
        with stopped_job(tmp_path / "stopped", TABLES[number % 2]):
            del server.objects[f"queues/{LEASE}"]  # it has run out
            with job_copy(ObjectStorage(URI), "compact", tmp_path / "other") as copy:
                compact(copy.root.path)
                copy.finish()
            committed = ends(tmp_path / "look")
        assert ends(tmp_path / "look") == committed, number
    store = DeltaMessageStore(URI, StoreConfig(copy_dir=str(tmp_path / "end")))
    found = [store.load(each).body for each in store.recover().entries["q"]]
    store.close()
    assert found == [b"%d" % number for number in range(ROUNDS)]
