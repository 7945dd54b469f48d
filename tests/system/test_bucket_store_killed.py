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
MESSAGES = int(os.environ.get("SPARKSTORE_BUCKET_MESSAGES", "0"))
"""Go on until so many were put, whatever the kills are."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with served(monkeypatch) as server:
        yield server


@pytest.mark.parametrize("ack", ["delta", "wal"])
def test_a_store_on_a_bucket_killed_again_and_again_keeps_what_it_told(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: str
) -> None:
    is_long = MESSAGES > 0
    run(BucketKillLoop(tmp_path, 3, server, monkeypatch, ack=ack, is_long=is_long), ack)


@pytest.mark.thorough
def test_the_same_on_a_server_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with versitygw.served(tmp_path / "buckets", monkeypatch):
        run(BucketKillLoop(tmp_path, 4, None, monkeypatch, ack="delta"), "versitygw")


def run(loop: BucketKillLoop, ack: str) -> None:
    while loop.rounds < ROUNDS or loop.message_count < MESSAGES:
        loop.round(power_cut=loop.rounds % 2 == 1)
        if loop.rounds % 10 == 0:
            print(told(loop, ack), flush=True)
    print(told(loop, ack))
    assert loop.known.answered > 20


def told(loop: BucketKillLoop, ack: str) -> str:
    return (
        f"{ack}: {loop.rounds} rounds, {loop.taken_over} taken over, {loop.message_count} messages,"
        f" {loop.known.answered} calls answered, {loop.in_doubt} in doubt, {loop.dropped} answers"
        " dropped: nothing lost"
    )
