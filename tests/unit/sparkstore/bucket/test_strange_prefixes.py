"""A prefix with spaces, `%` and letters of other languages means what stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.bucket.job_copy import job_copy
from sparkstore.cli.command_line import main
from sparkstore.replication import bucket_copy
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects import s3_server, versitygw
from tests.support.objects.copies import bodies_in, compact, copy, enqueue

pytestmark = pytest.mark.slow

PREFIX = "my queues/100%/a%20b/é"
URI = f"s3://lake/{PREFIX}"


@pytest.fixture(
    autouse=True,
    params=["own", pytest.param("judge", marks=(pytest.mark.thorough, pytest.mark.slow))],
)
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    served = (
        s3_server.served(monkeypatch)
        if request.param == "own"
        else versitygw.served(tmp_path / "buckets", monkeypatch)
    )
    with served:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield


def check_names() -> None:
    """Everything is below the prefix as it was written, and nothing anywhere else."""
    below = {file.name for file in ObjectStorage(URI).files()}
    around = {file.name for file in ObjectStorage("s3://lake/my queues").files()}
    assert below
    assert around == {f"100%/a%20b/é/{name}" for name in below}


def test_a_root_there_is_served_asked_compacted_and_given_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(URI, b"one", b"two")
    with job_copy(ObjectStorage(URI), "compact", tmp_path / "jobs") as jobs:
        compact(jobs.root.path)
        jobs.finish()
    enqueue(URI, b"three")
    for command in (["queues"], ["verify", "--deep"], ["current"], ["browse", "--body"]):
        queue = ["q"] if command[0] == "browse" else []
        assert main([*command, "--json", URI, *queue]) == 0
    told = capsys.readouterr().out
    assert all(f'"body": "{body}"' in told for body in ("one", "two", "three"))
    assert main(["queue", "create", URI, "another"]) == 0
    check_names()


def test_a_replica_there_is_kept_short_and_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_copy, "_UPKEEP_COMMITS", 2)
    bodies = [b"%d" % number for number in range(4)]
    for body in bodies:
        enqueue(tmp_path / "primary", body)
        copy(tmp_path / "primary", ObjectStorage(URI))
    log = [file.name for file in ObjectStorage(URI).files("journal/_delta_log")]
    assert any("checkpoint" in name for name in log)
    check_names()
    assert main(["promote", URI]) == 0
    assert bodies_in(URI) == bodies
