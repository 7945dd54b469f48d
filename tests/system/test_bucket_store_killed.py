"""A store on a bucket that drops answers, killed or stopped: what it told stays true."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.objects import versitygw
from tests.support.objects.s3_server import S3Server, served
from tests.support.system.bucket_kill_loop import BucketKillLoop

pytestmark = [pytest.mark.system, pytest.mark.slow]

ROUNDS = int(os.environ.get("SPARKSTORE_BUCKET_KILLS", "2"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.mark.parametrize("ack", ["delta", "wal"])
def test_a_store_on_a_bucket_killed_again_and_again_keeps_what_it_told(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: str
) -> None:
    run(BucketKillLoop(tmp_path, 3, server, monkeypatch, ack=ack), ack)


@pytest.mark.thorough
def test_the_same_on_a_server_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with versitygw.served(tmp_path / "buckets", monkeypatch):
        run(BucketKillLoop(tmp_path, 4, None, monkeypatch, ack="delta"), "versitygw")


def run(loop: BucketKillLoop, ack: str) -> None:
    for number in range(ROUNDS):
        loop.round(power_cut=number % 2 == 1)
    print(
        f"{ack}: {ROUNDS} rounds, {loop.taken_over} taken over, {loop.known.answered} calls"
        f" answered, {loop.in_doubt} in doubt, {loop.dropped} answers dropped: nothing lost"
    )
    assert loop.known.answered > 20
