"""`sparkstore replicate ROOT s3://…` killed with SIGKILL while one of its puts is served."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.replication.bucket_promote import promote_into
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects.copies import bodies_in, compact, copy, enqueue
from tests.support.objects.s3_server import DROP, Request, S3Server, served

pytestmark = [pytest.mark.system, pytest.mark.slow]

URI = "s3://lake/queues"
TIMEOUT_S = 120


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


def replicate(primary: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sparkstore", "replicate", str(primary), URI]
    return subprocess.Popen(
        command, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_at(server: S3Server, primary: Path, number: int, *, lands: bool) -> bool:
    """Run until the put of this number, then kill; False if there is none."""
    puts = 0
    started: list[subprocess.Popen[str]] = []

    def kills(request: Request) -> int | None:
        nonlocal puts
        if request.method != "PUT":
            return None
        puts += 1
        if puts < number + 1:
            return None
        started[0].kill()
        started[0].wait()
        return DROP if lands else 500

    server.faults = [kills]
    try:
        with replicate(primary) as process:
            started.append(process)
            _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        server.faults = []
    assert process.returncode in {0, -9}, said
    return process.returncode != 0


@pytest.mark.parametrize(
    "puts", [pytest.param([5, 6, 7], id="some"), pytest.param(None, marks=pytest.mark.thorough)]
)
def test_whatever_put_it_is_killed_at_the_next_run_completes_the_replica(
    server: S3Server, tmp_path: Path, puts: list[int] | None
) -> None:
    primary, bodies = tmp_path / "primary", [b"first"]
    enqueue(primary, *bodies)
    bucket = ObjectStorage(URI)
    copy(primary, bucket)
    for number in puts or range(40):
        bodies.append(b"%d" % number)
        compact(primary)
        enqueue(primary, bodies[-1])
        was_killed = kill_at(server, primary, number, lands=number % 2 == 0)
        end = copy(primary, bucket).position_after
        if not was_killed:
            break
    else:
        assert puts is not None
    assert promote_into(bucket, tmp_path / "new").last_position == end
    assert bodies_in(tmp_path / "new") == bodies
