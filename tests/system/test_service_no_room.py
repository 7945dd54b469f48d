"""A service whose log has no room, because Delta does not answer: who waits, who is told what."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.store import protocol as wire
from sparkstore.core.records import Kind, Record
from sparkstore.log import committer
from tests.support.roots.storage import Storage
from tests.support.stores.full import SMALL, fill_up
from tests.support.stores.raw_member import RawMember, create
from tests.support.stores.services import served

pytestmark = pytest.mark.system


def test_recovery_waits_for_room_and_tells_everything_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_LONGEST_RETRY_S", 0.05)
    storage = Storage(monkeypatch)
    with served(tmp_path / "root", config=SMALL) as there, RawMember(there.path) as member:
        member.hello()
        kept = Record(Kind.CONFIGURED, 0, exchange="c", binding_key="k", detail="{}")
        assert member.ask(1, create(), kept) == []
        storage.is_down = True
        fill_up(there.store)
        with RawMember(there.path, "late") as late:
            late.say(wire.HELLO, wire.VERSION, "late", "i", None, False, None)
            frame = late.hears()
        assert frame is not None
        assert (frame[0], frame[1][0]) == (wire.GOODBYE, "Full")
        assert "retry later" in frame[1][1]
        member.say(wire.RECOVER, 1)
        first = member.hears()
        assert first is not None
        assert (first[0], first[1][2]) == (wire.ANSWER, "wiring")
        storage.is_down = False
        answers = [first[1][1:]]
        while not answers[-1][0]:
            frame = member.hears()
            assert frame is not None
            assert frame[0] == wire.ANSWER
            answers.append(frame[1][1:])
        taken = [*there.store.recover().entries["q"]]
    sections = {answer[1]: answer[2:] for answer in answers}
    told = sections["messages"][0]
    assert [int.from_bytes(told[at : at + 8]) for at in range(0, len(told), 8)] == taken
    assert len(taken) > 20
