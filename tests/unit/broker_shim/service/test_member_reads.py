"""Reads of a member are answered while one of them waits for the lease of a witness."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.service.member_reads import ReadWorker
from broker_shim.service.outbox import Outbox
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from tests.support.roots.logs import TIMEOUT_S, until

pytestmark = pytest.mark.slow


def test_reads_are_answered_while_branches_wait_for_the_witness(tmp_path: Path) -> None:
    """A machine that may have been replaced tells of no branch, and holds up nothing else."""
    witness, away = tmp_path / "witness", tmp_path / "away"
    witness.mkdir()
    config = StoreConfig(witness=str(witness), witness_lease_s=0.3)
    member, service = socket.socketpair()
    member.settimeout(TIMEOUT_S)
    decoder = wire.Decoder()
    with closing(DeltaMessageStore(tmp_path / "root", config)) as store, member, service:
        reads = ReadWorker(store, Outbox(service))

        def answers(count: int) -> list[wire.Frame]:
            frames = list[wire.Frame]()
            while len(frames) < count:
                frames += decoder.feed(member.recv(4096))
            return frames

        def ask_twice() -> None:
            for _ in range(2):  # the thread may have one in hand, which counts as none
                reads.take(wire.BRANCHES, (0,))

        witness.rename(away)
        until(lambda: store.backlog.witness_left_s == 0)
        reads.take(wire.BRANCHES, (1,))
        reads.take(wire.BRANCHES, (2, None))
        reads.take(wire.PUBLISHED, (3, "stream"))
        assert answers(1) == [(wire.ANSWER, (3, True, -1))]
        for number in range(wire.MAX_WAITING_READS - 2):
            reads.take(wire.BRANCHES, (4 + number,))
        with pytest.raises(InvalidRequest, match="reads wait for their answers"):
            ask_twice()
        away.rename(witness)
        numbers = [body[0] for _, body in answers(wire.MAX_WAITING_READS)]
        assert numbers[: wire.MAX_WAITING_READS] == [1, 2, *range(4, wire.MAX_WAITING_READS + 2)]
        reads.end()
